"""CEL functions on URLs, IP addresses and CIDRs, which are parsed like in Go."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from phalanx_local.schema.cel.errors import EvalError
from phalanx_local.schema.cel.functions import Overload, Table, member, parses
from phalanx_local.schema.cel.types import BOOL, CIDR, INT, IP, STRING, STRINGS, URL, Type
from phalanx_local.schema.urls import Url, parse_url


def _url(text: str) -> Url:
    try:
        return parse_url(text)
    except ValueError as error:
        raise EvalError(f"URL parse error during conversion from string: {error}") from None


def _ip(text: str) -> Any:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise EvalError(f'IP Address "{text}" parse error during conversion from string') from None
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped is not None or "%" in text):
        raise EvalError(f'IP Address "{text}" parse error during conversion from string')
    return address


def _cidr(text: str) -> Any:
    try:
        if not re.fullmatch(r"[^/%]+/(?:0|[1-9][0-9]*)", text, re.ASCII):
            raise ValueError
        block = ipaddress.ip_interface(text)
        if isinstance(block, ipaddress.IPv6Interface) and block.ip.ipv4_mapped is not None:
            raise ValueError
        return block
    except ValueError:
        raise EvalError(f'network address parse error during conversion from string: "{text}"') from None


def _within(block: Any, other: Any) -> bool:
    return bool(block.version == other.version and other.network.subnet_of(block.network))


def _is_local_multicast(address: Any) -> bool:
    return address in ipaddress.ip_network("224.0.0.0/24" if address.version == 4 else "ff02::/16")


def _is_global(address: Any) -> bool:
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special and str(address) != "255.255.255.255"


def addresses() -> Table:
    """Return the CEL functions on URLs, IP addresses and CIDRs."""
    return {
        "url": [Overload(("string",), URL, _url)],
        "isURL": [Overload(("string",), BOOL, parses(_url))],
        "getScheme": [member(("url",), STRING, lambda url: url.scheme)],
        "getHost": [member(("url",), STRING, lambda url: url.host)],
        "getHostname": [member(("url",), STRING, lambda url: url.host_name)],
        "getPort": [member(("url",), STRING, lambda url: url.port)],
        "getEscapedPath": [member(("url",), STRING, lambda url: url.escaped_path)],
        "getQuery": [member(("url",), Type("map", STRINGS), lambda url: url.values)],
        "ip": [Overload(("string",), IP, _ip), member(("cidr",), IP, lambda block: block.ip)],
        "isIP": [Overload(("string",), BOOL, parses(_ip))],
        "ip.isCanonical": [Overload(("string",), BOOL, lambda text: str(_ip(text)) == text)],
        "family": [member(("ip",), INT, lambda address: address.version)],
        "isUnspecified": [member(("ip",), BOOL, lambda address: address.is_unspecified)],
        "isLoopback": [member(("ip",), BOOL, lambda address: address.is_loopback)],
        "isLinkLocalMulticast": [member(("ip",), BOOL, _is_local_multicast)],
        "isLinkLocalUnicast": [member(("ip",), BOOL, lambda address: address.is_link_local)],
        "isGlobalUnicast": [member(("ip",), BOOL, _is_global)],
        "cidr": [Overload(("string",), CIDR, _cidr)],
        "isCIDR": [Overload(("string",), BOOL, parses(_cidr))],
        "containsIP": [
            member(("cidr", "string"), BOOL, lambda block, text: _ip(text) in block.network),
            member(("cidr", "ip"), BOOL, lambda block, address: address in block.network),
        ],
        "containsCIDR": [
            member(("cidr", "string"), BOOL, lambda block, text: _within(block, _cidr(text))),
            member(("cidr", "cidr"), BOOL, _within),
        ],
        "masked": [member(("cidr",), CIDR, lambda block: ipaddress.ip_interface(block.network.with_prefixlen))],
        "prefixLength": [member(("cidr",), INT, lambda block: block.network.prefixlen)],
        "string": [Overload(("ip",), STRING, str), Overload(("cidr",), STRING, str)],
    }
