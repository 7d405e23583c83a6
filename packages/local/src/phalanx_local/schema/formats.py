"""String formats in schemas of custom resources; unknown formats are ignored."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import date
from typing import Final

from phalanx.model.text.patterns import compile_pattern
from phalanx_local.schema.durations import format_duration
from phalanx_local.schema.urls import parse_url
from phalanx_local.validation.names import dns_label, dns_subdomain

Format = Callable[[str], bool]

_HEX: Final = "[0-9a-fA-F]"
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+|[^<>@]*<[^@\s<>]+@[^@\s<>]+>")
_MAC: Final = re.compile(
    rf"{_HEX}{{2}}(?:(?::{_HEX}{{2}}){{5}}(?:(?::{_HEX}{{2}}){{2}}|(?::{_HEX}{{2}}){{14}})?"
    rf"|(?:-{_HEX}{{2}}){{5}}(?:(?:-{_HEX}{{2}}){{2}}|(?:-{_HEX}{{2}}){{14}})?)"
    rf"|{_HEX}{{4}}(?:\.{_HEX}{{4}}){{2}}(?:\.{_HEX}{{4}}|(?:\.{_HEX}{{4}}){{7}})?"
)
#: One label, or labels with a top-level name of letters. A single label can have a dash only after its first
#: letter.
_HOST: Final = (
    "^([a-zA-Z0-9{0}]((-?[a-zA-Z0-9{0}]{{0,62}})?)"
    "|([a-zA-Z0-9{0}](([a-zA-Z0-9-{0}]{{0,61}}[a-zA-Z0-9{0}])?)(\\.)){{1,}}([a-zA-Z{1}]){{2,63}})$"
)
_BASE64: Final = re.compile("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_CARD: Final = re.compile(
    "4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    "|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)
_COLOR_PART: Final = r"\s*(?:0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*"


def _date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    # Python also parses the dates of ISO weeks.
    return len(text) == 10 and "W" not in text


def _date_time(text: str) -> bool:
    day, mark, clock = text.lower().partition("t")
    match = _TIME.fullmatch(clock.partition("t")[0])
    if not mark or not _date(day) or match is None:
        return False
    return match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _address(text: str) -> bool:
    """Return whether the text is an IP address; IPv4 parts can have leading zeros."""
    head, mark, last = text.rpartition(":")
    if "." in last:
        parts = last.split(".")
        if len(parts) != 4 or not all(re.fullmatch("[0-9]+", part) and int(part) < 256 for part in parts):
            return False
        last = ".".join(str(int(part)) for part in parts)
    try:
        ipaddress.ip_address(head + mark + last)
    except ValueError:
        return False
    return "%" not in text


def _cidr(text: str) -> bool:
    address, mark, bits = text.partition("/")
    if not mark or not re.fullmatch("[0-9]+", bits) or not _address(address):
        return False
    return int(bits) <= (128 if ":" in address else 32)


def _uri(text: str) -> bool:
    try:
        parse_url(text)
    except ValueError:
        return False
    return True


def _host_name(text: str) -> bool:
    # Symbols and letters of all scripts are valid.
    classes = ("$+<=>^`|~", "") if text.isascii() else (r"\p{S}\p{L}", r"\p{L}")
    if not compile_pattern(_HOST.format(*classes)).found_in(text):
        return False
    return len(text.encode()) <= 255 and all(len(part.encode()) <= 63 for part in text.split("."))


def _card(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = [int(digit) * (1 + index % 2) for index, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def _isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch("[0-9]{9}[0-9X]", digits):
        return False
    return sum((index + 1) * (10 if char == "X" else int(char)) for index, char in enumerate(digits)) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch("[0-9]{13}", digits):
        return False
    return sum(int(char) * (1 + 2 * (index % 2)) for index, char in enumerate(digits)) % 10 == 0


def _matches(pattern: str | re.Pattern[str]) -> Format:
    compiled = re.compile(pattern) if isinstance(pattern, str) else pattern
    return lambda text: compiled.fullmatch(text) is not None


def _uuid(third: str = "", fourth: str = "") -> Format:
    kind = third + _HEX + ("{3}" if third else "{4}")
    variant = fourth + _HEX + ("{3}" if fourth else "{4}")
    return _matches(f"{_HEX}{{8}}-?{_HEX}{{4}}-?{kind}-?{variant}-?{_HEX}{{12}}")


FORMATS: Final[dict[str, Format]] = {
    "bsonobjectid": _matches(f"{_HEX}{{24}}"),
    "byte": _matches(_BASE64),
    "cidr": _cidr,
    "creditcard": _card,
    "date": _date,
    "date-time": _date_time,
    "datetime": _date_time,
    "duration": lambda text: format_duration(text) is not None,
    "email": _matches(_EMAIL),
    "hexcolor": _matches(f"#?(?:{_HEX}{{3}}|{_HEX}{{6}})"),
    "hostname": _host_name,
    "ipv4": lambda text: "." in text and _address(text),
    "ipv6": lambda text: ":" in text and _address(text),
    "isbn": lambda text: _isbn10(text) or _isbn13(text),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "k8s-long-name": lambda text: not dns_subdomain(text),
    "k8s-short-name": lambda text: not dns_label(text),
    "mac": _matches(_MAC),
    "password": lambda text: True,
    "rgbcolor": _matches(rf"rgb\({_COLOR_PART},{_COLOR_PART},{_COLOR_PART}\)"),
    "ssn": lambda text: len(text) == 11 and re.fullmatch("[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}", text) is not None,
    "uri": _uri,
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89abAB]"),
    "uuid5": _uuid("5", "[89abAB]"),
}

#: Number formats by type, with their bounds.
NUMBERS: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "integer": {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)},
    "number": {
        "float": (-3.4028234663852886e38, 3.4028234663852886e38),
        "double": (float("-inf"), float("inf")),
    },
}


def checked_format(kind: str, name: str) -> str:
    """Return the format to check for values of a type: "" if the type (or "" for any type) has no such format."""
    if kind in NUMBERS:
        return name if name in NUMBERS[kind] else ""
    known = FORMATS.get(name) is not None or FORMATS.get(name.replace("-", "")) is not None
    return name if kind in ("", "string") and known else ""


def format_check(name: str) -> Format | None:
    """Return the function that checks a string format; dashes in the format's name are ignored."""
    return FORMATS.get(name) or FORMATS.get(name.replace("-", ""))
