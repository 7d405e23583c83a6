"""The string formats that a custom resource's schema may ask for; unknown formats are ignored."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from typing import Final

from phalanx.local.schema.urls import parse_url
from phalanx.local.validation.names import dns_label, dns_subdomain

Format = Callable[[str], bool]

_DATE_TIME: Final = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(\.\d+)?([Zz]|[+-]\d{2}:\d{2})?")
_DURATION: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)\s*[a-zµμ]+(\s*(\d+(\.\d*)?|\.\d+)\s*[a-zµμ]+)*|[+-]?0")
_HOSTNAME: Final = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}")
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_MAC: Final = re.compile(r"([0-9A-Fa-f]{2}[:-]){5,7}[0-9A-Fa-f]{2}|([0-9A-Fa-f]{4}\.){2,3}[0-9A-Fa-f]{4}")


def _date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    # Python also reads the dates of ISO weeks.
    return len(text) == 10 and "W" not in text


def _date_time(text: str) -> bool:
    match = _DATE_TIME.fullmatch(text)
    return (
        match is not None and _date(match[1]) and int(match[2]) < 24 and int(match[3]) < 60 and int(match[4]) < 61
    )


def _ip(version: int) -> Format:
    def check(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return check


def _cidr(text: str) -> bool:
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    # Python also reads netmasks.
    return text.partition("/")[2].isdecimal()


def _base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _hostname(text: str) -> bool:
    labels = text.removesuffix(".").split(".")
    return 0 < len(text) <= 253 and all(_HOSTNAME.fullmatch(label) for label in labels)


def _uri(text: str) -> bool:
    try:
        parse_url(text)
    except ValueError:
        return False
    return True


def _matches(pattern: re.Pattern[str]) -> Format:
    return lambda text: pattern.fullmatch(text) is not None


FORMATS: Final[dict[str, Format]] = {
    "byte": _base64,
    "cidr": _cidr,
    "date": _date,
    "date-time": _date_time,
    "datetime": _date_time,
    "duration": _matches(_DURATION),
    "email": _matches(_EMAIL),
    "hostname": _hostname,
    "ipv4": _ip(4),
    "ipv6": _ip(6),
    "k8s-long-name": lambda text: not dns_subdomain(text),
    "k8s-short-name": lambda text: not dns_label(text),
    "mac": _matches(_MAC),
    "uri": _uri,
    "uuid": _matches(_UUID),
}

#: Integer formats and their bounds.
RANGES: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
