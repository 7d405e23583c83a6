"""The extension libraries that Kubernetes gives to rules.

Strings (version 2), lists, sets, regular expressions, optionals, quantities, URLs, IP addresses and CIDRs, named
formats and semantic versions, as in the CEL environment of Kubernetes 1.36.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from phalanx.local.schema.cel.errors import EvalError
from phalanx.local.schema.cel.functions import Overload, to_text
from phalanx.local.schema.cel.text import format_text
from phalanx.local.schema.cel.types import (
    BOOL,
    DOUBLE,
    DYN,
    INT,
    LIST,
    STRING,
    STRINGS,
    Type,
    list_of,
    optional_of,
)
from phalanx.local.schema.cel.values import (
    NONE,
    Duration,
    Option,
    Semver,
    StringFormat,
    UInt,
    Url,
    equal,
    kind_of,
    less,
)
from phalanx.local.schema.formats import FORMATS
from phalanx.local.schema.nodes import compile_pattern
from phalanx.local.validation.names import (
    dns1035_label,
    dns_label,
    dns_subdomain,
    label_key,
    label_value,
    masked,
)
from phalanx.local.validation.quantity import NANO, Quantity, QuantityError, parse_quantity

QUANTITY: Final = Type("quantity")
URL: Final = Type("url")
IP: Final = Type("ip")
CIDR: Final = Type("cidr")
SEMVER: Final = Type("semver")
FORMAT: Final = Type("format")

Table = dict[str, list[Overload]]


def _member(kinds: tuple[str, ...], result: Any, run: Callable[..., Any]) -> Overload:
    return Overload(kinds, result, run, True)


def _element(kinds: tuple[Type, ...]) -> Type:
    return kinds[0].item or DYN


def _list(kinds: tuple[Type, ...]) -> Type:
    return list_of(kinds[0].item or DYN)


# strings --------------------------------------------------------------------------------------------------


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvalError(f"index out of range: {index}")
    return text[index : index + 1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= len(text):
        raise EvalError(f"index out of range: {start}")
    if not 0 <= end <= len(text):
        raise EvalError(f"index out of range: {end}")
    if end < start:
        raise EvalError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if not 0 <= start <= len(text):
        raise EvalError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(text: str, part: str, last: int | None = None) -> int:
    if last is None:
        return text.rfind(part)
    if not 0 <= last <= len(text):
        raise EvalError(f"index out of range: {last}")
    return text.rfind(part, 0, last + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if separator == "":
        chars = list(text)
        return chars if count < 0 or len(chars) <= count else [*chars[: count - 1], "".join(chars[count - 1 :])]
    return text.split(separator, count - 1 if count > 0 else -1)


def _join(items: list[Any], separator: str = "") -> str:
    if not all(isinstance(item, str) for item in items):
        raise EvalError("no such overload")
    return separator.join(items)


_UPPER: Final = {ord(char): char.upper() for char in "abcdefghijklmnopqrstuvwxyz"}
_LOWER: Final = {ord(char.upper()): char for char in "abcdefghijklmnopqrstuvwxyz"}


def _quote(text: str) -> str:
    table = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
    inner = "".join(table.get(char, "\\" + char if char in '"\\' else char) for char in text)
    return f'"{inner}"'


def _strings() -> Table:
    string, text = "string", STRING
    return {
        "charAt": [_member((string, "int"), text, _char_at)],
        "indexOf": [
            _member((string, string), INT, _index_of),
            _member((string, string, "int"), INT, _index_of),
        ],
        "lastIndexOf": [
            _member((string, string), INT, _last_index_of),
            _member((string, string, "int"), INT, _last_index_of),
        ],
        "join": [_member(("list",), text, _join), _member(("list", string), text, _join)],
        "lowerAscii": [_member((string,), text, lambda value: value.translate(_LOWER))],
        "upperAscii": [_member((string,), text, lambda value: value.translate(_UPPER))],
        "replace": [
            _member((string, string, string), text, _replace),
            _member((string, string, string, "int"), text, _replace),
        ],
        "split": [_member((string, string), STRINGS, _split), _member((string, string, "int"), STRINGS, _split)],
        "substring": [
            _member((string, "int"), text, _substring),
            _member((string, "int", "int"), text, _substring),
        ],
        "trim": [_member((string,), text, lambda value: value.strip())],
        "format": [_member((string, "list"), text, format_text)],
        "strings.quote": [Overload((string,), text, _quote)],
        "find": [_member((string, string), text, _find)],
        "findAll": [
            _member((string, string), STRINGS, _find_all),
            _member((string, string, "int"), STRINGS, _find_all),
        ],
    }


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return compile_pattern(text)
    except re.error as error:
        raise EvalError(f"error parsing regexp: {error}") from None


def _find(text: str, pattern: str) -> str:
    match = _pattern(pattern).search(text)
    return match.group() if match is not None else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match.group() for match in _pattern(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


# lists and sets -------------------------------------------------------------------------------------------


def _is_sorted(items: list[Any]) -> bool:
    return all(not less(after, before) for before, after in itertools.pairwise(items))


def _sum(items: list[Any]) -> Any:
    if not items:
        return 0
    if all(isinstance(item, Duration) for item in items):
        return Duration(sum(item.nano for item in items))
    if any(kind_of(item) not in ("int", "uint", "double") for item in items):
        raise EvalError("no such overload")
    total = sum(items)
    if isinstance(total, int) and not -(2**63) <= total < 2**64:
        raise EvalError("integer overflow")
    return UInt(total) if kind_of(items[0]) == "uint" else total


def _extreme(items: list[Any], *, largest: bool) -> Any:
    if not items:
        raise EvalError(f"{'max' if largest else 'min'} called on empty list")
    best = items[0]
    for item in items[1:]:
        if less(best, item) if largest else less(item, best):
            best = item
    return best


def _position(items: list[Any], wanted: Any) -> int:
    return next((index for index, item in enumerate(items) if equal(item, wanted)), -1)


def _last_position(items: list[Any], wanted: Any) -> int:
    return next((index for index in reversed(range(len(items))) if equal(items[index], wanted)), -1)


def _distinct(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if not any(equal(item, known) for known in found):
            found.append(item)
    return found


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise EvalError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvalError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(items):
        raise EvalError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvalError("level must be non-negative")
    result: list[Any] = []
    for item in items:
        if isinstance(item, list) and depth:
            result.extend(_flatten(item, depth - 1))
        else:
            result.append(item)
    return result


def _sort(items: list[Any]) -> list[Any]:
    result: list[Any] = []
    for item in items:
        place = next((index for index, known in enumerate(result) if less(item, known)), len(result))
        result.insert(place, item)
    return result


_MAX_RANGE: Final = 1_000_000


def _range(count: int) -> list[int]:
    if count > _MAX_RANGE:
        raise EvalError("operation cancelled: actual cost limit exceeded")
    return list(range(count))


def _contains_all(items: list[Any], wanted: list[Any]) -> bool:
    return all(any(equal(item, other) for item in items) for other in wanted)


def _lists() -> Table:
    return {
        "isSorted": [_member(("list",), BOOL, _is_sorted)],
        "sum": [_member(("list",), _element, _sum)],
        "min": [_member(("list",), _element, lambda items: _extreme(items, largest=False))],
        "max": [_member(("list",), _element, lambda items: _extreme(items, largest=True))],
        "indexOf": [_member(("list", "any"), INT, _position)],
        "lastIndexOf": [_member(("list", "any"), INT, _last_position)],
        "slice": [_member(("list", "int", "int"), _list, _slice)],
        "flatten": [_member(("list",), LIST, _flatten), _member(("list", "int"), LIST, _flatten)],
        "sort": [_member(("list",), _list, _sort)],
        "reverse": [_member(("list",), _list, lambda items: items[::-1])],
        "distinct": [_member(("list",), _list, _distinct)],
        "first": [_member(("list",), lambda kinds: optional_of(_element(kinds)), lambda items: _option(items[:1]))],
        "last": [_member(("list",), lambda kinds: optional_of(_element(kinds)), lambda items: _option(items[-1:]))],
        "lists.range": [Overload(("int",), list_of(INT), _range)],
        "sets.contains": [Overload(("list", "list"), BOOL, _contains_all)],
        "sets.equivalent": [
            Overload(("list", "list"), BOOL, lambda a, b: _contains_all(a, b) and _contains_all(b, a))
        ],
        "sets.intersects": [Overload(("list", "list"), BOOL, lambda a, b: any(equal(x, y) for x in a for y in b))],
    }


# optionals ------------------------------------------------------------------------------------------------


def _option(found: list[Any]) -> Option:
    return Option(True, found[0]) if found else NONE


def _value(option: Option) -> Any:
    if not option.present:
        raise EvalError("optional.none() dereference")
    return option.value


def _is_zero(value: Any) -> bool:
    return value is None or (kind_of(value) not in ("optional_type", "type") and not value)


def _optionals() -> Table:
    option = "optional_type"

    def wrapped(kinds: tuple[Type, ...]) -> Type:
        return optional_of(kinds[0])

    return {
        "optional.of": [Overload(("any",), wrapped, lambda value: Option(True, value))],
        "optional.ofNonZeroValue": [
            Overload(("any",), wrapped, lambda value: NONE if _is_zero(value) else Option(True, value))
        ],
        "optional.none": [Overload((), optional_of(DYN), lambda: NONE)],
        "hasValue": [_member((option,), BOOL, lambda value: value.present)],
        "value": [_member((option,), _element, _value)],
        "orValue": [
            _member((option, "any"), _element, lambda value, other: value.value if value.present else other)
        ],
        "or": [
            _member(
                (option, option), lambda kinds: kinds[0], lambda value, other: value if value.present else other
            )
        ],
    }


# quantities -----------------------------------------------------------------------------------------------


def _quantity(text: str) -> Quantity:
    if text != text.strip():
        raise EvalError("quantities must match the regular expression")
    try:
        return parse_quantity(text)
    except QuantityError as error:
        raise EvalError(str(error)) from None


def _parses(parser: Callable[..., Any]) -> Callable[..., bool]:
    def check(*args: Any) -> bool:
        try:
            parser(*args)
        except EvalError:
            return False
        return True

    return check


def _as_integer(quantity: Quantity) -> int:
    if not _is_integer(quantity):
        raise EvalError("cannot convert value to integer")
    return quantity.nano // NANO


def _is_integer(quantity: Quantity) -> bool:
    return quantity.whole and -(2**63) <= quantity.nano // NANO < 2**63


def _compare(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _quantities() -> Table:
    quantity = "quantity"
    return {
        "quantity": [Overload(("string",), QUANTITY, _quantity)],
        "isQuantity": [Overload(("string",), BOOL, _parses(_quantity))],
        "isInteger": [_member((quantity,), BOOL, _is_integer)],
        "asInteger": [_member((quantity,), INT, _as_integer)],
        "asApproximateFloat": [_member((quantity,), DOUBLE, lambda value: value.nano / NANO)],
        "sign": [_member((quantity,), INT, lambda value: _compare(value.nano, 0))],
        "add": [
            _member((quantity, quantity), QUANTITY, lambda a, b: Quantity(a.nano + b.nano, a.style)),
            _member((quantity, "int"), QUANTITY, lambda a, b: Quantity(a.nano + b * NANO, a.style)),
        ],
        "sub": [
            _member((quantity, quantity), QUANTITY, lambda a, b: Quantity(a.nano - b.nano, a.style)),
            _member((quantity, "int"), QUANTITY, lambda a, b: Quantity(a.nano - b * NANO, a.style)),
        ],
        "isLessThan": [_member((quantity, quantity), BOOL, lambda a, b: a.nano < b.nano)],
        "isGreaterThan": [_member((quantity, quantity), BOOL, lambda a, b: a.nano > b.nano)],
        "compareTo": [_member((quantity, quantity), INT, lambda a, b: _compare(a.nano, b.nano))],
    }


# URLs, addresses ------------------------------------------------------------------------------------------


def _url(text: str) -> Url:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise EvalError(f"URL parse error during conversion from string: {error}") from None
    if re.search(r"[\x00-\x20\x7f]", text) or not (parts.scheme or text.startswith("/")):
        raise EvalError("URL parse error during conversion from string")
    if parts.scheme and not parts.netloc and not parts.path:
        raise EvalError("URL parse error during conversion from string")
    del port
    return Url(parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query)


def _host_name(url: Url) -> str:
    if url.host.startswith("["):
        return url.host[1:].partition("]")[0]
    return url.host.partition(":")[0]


def _port(url: Url) -> str:
    tail = url.host.rpartition("]")[2]
    return tail.partition(":")[2]


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
        if "/" not in text:
            raise ValueError
        return ipaddress.ip_interface(text)
    except ValueError:
        raise EvalError(f'network address parse error during conversion from string: "{text}"') from None


def _within(block: Any, other: Any) -> bool:
    return bool(block.version == other.version and other.network.subnet_of(block.network))


def _addresses() -> Table:
    return {
        "url": [Overload(("string",), URL, _url)],
        "isURL": [Overload(("string",), BOOL, _parses(_url))],
        "getScheme": [_member(("url",), STRING, lambda url: url.scheme)],
        "getHost": [_member(("url",), STRING, lambda url: url.host)],
        "getHostname": [_member(("url",), STRING, _host_name)],
        "getPort": [_member(("url",), STRING, _port)],
        "getEscapedPath": [_member(("url",), STRING, lambda url: url.path)],
        "getQuery": [
            _member(("url",), Type("map", STRINGS), lambda url: parse_qs(url.query, keep_blank_values=True))
        ],
        "ip": [
            Overload(("string",), IP, _ip),
            _member(("cidr",), IP, lambda block: block.ip),
        ],
        "isIP": [Overload(("string",), BOOL, _parses(_ip))],
        "ip.isCanonical": [Overload(("string",), BOOL, lambda text: str(_ip(text)) == text)],
        "family": [_member(("ip",), INT, lambda address: address.version)],
        "isUnspecified": [_member(("ip",), BOOL, lambda address: address.is_unspecified)],
        "isLoopback": [_member(("ip",), BOOL, lambda address: address.is_loopback)],
        "isLinkLocalMulticast": [
            _member(
                ("ip",),
                BOOL,
                lambda address: (
                    address in ipaddress.ip_network("224.0.0.0/24" if address.version == 4 else "ff02::/16")
                ),
            )
        ],
        "isLinkLocalUnicast": [_member(("ip",), BOOL, lambda address: address.is_link_local)],
        "isGlobalUnicast": [
            _member(
                ("ip",),
                BOOL,
                lambda address: (
                    not (
                        address.is_unspecified
                        or address.is_loopback
                        or address.is_multicast
                        or address.is_link_local
                        or str(address) == "255.255.255.255"
                    )
                ),
            )
        ],
        "cidr": [Overload(("string",), CIDR, _cidr)],
        "isCIDR": [Overload(("string",), BOOL, _parses(_cidr))],
        "containsIP": [
            _member(("cidr", "string"), BOOL, lambda block, text: _ip(text) in block.network),
            _member(("cidr", "ip"), BOOL, lambda block, address: address in block.network),
        ],
        "containsCIDR": [
            _member(("cidr", "string"), BOOL, lambda block, text: _within(block, _cidr(text))),
            _member(("cidr", "cidr"), BOOL, _within),
        ],
        "masked": [_member(("cidr",), CIDR, lambda block: ipaddress.ip_interface(block.network.with_prefixlen))],
        "prefixLength": [_member(("cidr",), INT, lambda block: block.network.prefixlen)],
    }


# named formats --------------------------------------------------------------------------------------------


def _plain(name: str, words: str) -> Callable[[str], tuple[str, ...]]:
    return lambda text: () if FORMATS[name](text) else (words,)


_NAMED: Final[dict[str, Callable[[str], tuple[str, ...]]]] = {
    "dns1123Label": dns_label,
    "dns1123Subdomain": dns_subdomain,
    "dns1035Label": dns1035_label,
    "qualifiedName": label_key,
    "labelValue": label_value,
    "dns1123LabelPrefix": lambda text: dns_label(masked(text)),
    "dns1123SubdomainPrefix": lambda text: dns_subdomain(masked(text)),
    "dns1035LabelPrefix": lambda text: dns1035_label(masked(text)),
    "uri": lambda text: () if _parses(_url)(text) else ("invalid URI",),
    "uuid": _plain("uuid", "does not match the UUID format"),
    "byte": _plain("byte", "invalid base64"),
    "date": _plain("date", "invalid date"),
    "datetime": _plain("datetime", "invalid datetime"),
}


def _check_format(named: StringFormat, text: str) -> Option:
    found = list(_NAMED[named.name](text))
    return Option(True, found) if found else NONE


def _formats() -> Table:
    table: Table = {
        "format.named": [
            Overload(
                ("string",),
                optional_of(FORMAT),
                lambda name: Option(True, StringFormat(name)) if name in _NAMED else NONE,
            )
        ],
        "validate": [_member(("format", "string"), optional_of(STRINGS), _check_format)],
    }

    def constant(name: str) -> Callable[[], StringFormat]:
        return lambda: StringFormat(name)

    for name in _NAMED:
        table[f"format.{name}"] = [Overload((), FORMAT, constant(name))]
    return table


# semantic versions ----------------------------------------------------------------------------------------

_NUMBER: Final = r"(0|[1-9]\d*)"
_SEMVER: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*)"
    r"(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*))*))?(?:\+([\dA-Za-z-]+(?:\.[\dA-Za-z-]+)*))?"
)


def _semver(text: str, normalize: bool = False) -> Semver:
    if normalize:
        text = text.removeprefix("v")
        core, mark, rest = re.fullmatch(r"([^-+]*)([-+]?)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
        parts = [part.lstrip("0") or "0" if part.isdigit() else part for part in core.split(".")]
        parts += ["0"] * (3 - len(parts))
        text = ".".join(parts) + mark + rest
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise EvalError(f'invalid semantic version "{text}"')
    pre = tuple(match[4].split(".")) if match[4] else ()
    return Semver(int(match[1]), int(match[2]), int(match[3]), pre, match[5] or "")


def _semvers() -> Table:
    pair = ("semver", "semver")
    return {
        "semver": [Overload(("string",), SEMVER, _semver), Overload(("string", "bool"), SEMVER, _semver)],
        "isSemver": [
            Overload(("string",), BOOL, _parses(_semver)),
            Overload(("string", "bool"), BOOL, _parses(_semver)),
        ],
        "major": [_member(("semver",), INT, lambda version: version.major)],
        "minor": [_member(("semver",), INT, lambda version: version.minor)],
        "patch": [_member(("semver",), INT, lambda version: version.patch)],
        "isLessThan": [_member(pair, BOOL, lambda a, b: a.key() < b.key())],
        "isGreaterThan": [_member(pair, BOOL, lambda a, b: a.key() > b.key())],
        "compareTo": [_member(pair, INT, lambda a, b: _compare(a.key(), b.key()))],
    }


def extensions() -> Table:
    """All functions of the libraries, by name; a dotted name is one with a namespace."""
    table: Table = {}
    for part in (
        _strings(),
        _lists(),
        _optionals(),
        _quantities(),
        _addresses(),
        _formats(),
        _semvers(),
    ):
        for name, overloads in part.items():
            table.setdefault(name, []).extend(overloads)
    return table


__all__ = ["extensions", "to_text"]
