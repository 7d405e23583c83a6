"""Runtime values of CEL beyond JSON, and equality and order of values.

JSON values are used directly: int, float (double), bool, str, bytes, None, list, dict.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from phalanx.model.text.quantity import Quantity
from phalanx_local.schema.cel.errors import EvalError
from phalanx_local.schema.durations import go_duration
from phalanx_local.schema.urls import Url

NANO: Final = 10**9


class UInt(int):
    """CEL value of type uint: an unsigned 64-bit integer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """CEL value of type duration, in nanoseconds."""

    nano: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """CEL value of type timestamp, in nanoseconds since the epoch; ``offset`` (minutes east of UTC) is that of its
    text."""

    nano: int
    offset: int = field(default=0, compare=False)

    def local(self, zone: str = "") -> datetime:
        """Return the local time in a time zone (default UTC), truncated to microseconds."""
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.nano // 1000)
        return moment.astimezone(zone_of(zone)) if zone else moment


#: First moment of the year 1, the zero time of Go.
ZERO_TIME: Final = Timestamp(-62135596800 * NANO)


@dataclass(frozen=True, slots=True)
class Option:
    """CEL value of type optional: a value or none."""

    present: bool
    value: Any = None


NONE: Final = Option(False)


@dataclass(frozen=True, slots=True)
class TypeName:
    """CEL type as a value: result of ``type(x)``, and value of the identifiers ``int``, ``string`` and so on."""

    name: str


@dataclass(frozen=True, slots=True)
class StringFormat:
    """Named string format in CEL (``format.dns1123Label()``)."""

    name: str


@dataclass(frozen=True, slots=True)
class Semver:
    """Semantic version as a CEL value; ``pre`` contains the identifiers of the pre-release."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()
    build: str = ""

    def key(self) -> tuple[Any, ...]:
        """Return the sort key of a semantic version (build metadata is ignored)."""
        parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre)
        return (self.major, self.minor, self.patch, not self.pre, parts)


@dataclass(frozen=True, slots=True)
class Check:
    """Authorization check in CEL: about a resource, or with ``path`` about a non-resource URL."""

    decide: Callable[[Check, str], tuple[bool, str]]
    account: tuple[str, str] | None = None
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Authorizer:
    """CEL value `authorizer` for the user of a request, or for a service account (namespace, name)."""

    decide: Callable[[Check, str], tuple[bool, str]]
    account: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """CEL value with the decision of an authorization check."""

    allowed: bool
    reason: str


def kind_of(value: Any) -> str:
    """Return the name of a CEL value's type."""
    kind = _KINDS.get(type(value))
    if kind is None:
        for known, name in _KINDS.items():
            if isinstance(value, known):
                return name
        return "dyn"
    return kind


_KINDS: Final[dict[type, str]] = {
    bool: "bool",
    UInt: "uint",
    int: "int",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    dict: "map",
    Duration: "duration",
    Timestamp: "timestamp",
    Option: "optional_type",
    TypeName: "type",
    Quantity: "quantity",
    Url: "url",
    StringFormat: "format",
    Semver: "semver",
    Authorizer: "authorizer",
    Check: "authorizer_check",
    Decided: "authorizer_decision",
    ipaddress.IPv4Address: "ip",
    ipaddress.IPv6Address: "ip",
    ipaddress.IPv4Interface: "cidr",
    ipaddress.IPv6Interface: "cidr",
}

#: Names of kinds in error messages and in ``type()``.
FULL_NAMES: Final = {
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
    "quantity": "kubernetes.Quantity",
    "url": "kubernetes.URL",
    "ip": "net.IP",
    "cidr": "net.CIDR",
    "semver": "kubernetes.Semver",
    "format": "kubernetes.NamedFormat",
}

_NUMERIC: Final = frozenset(("int", "uint", "double"))
_ORDERED: Final = frozenset(("bool", "string", "bytes", "duration", "timestamp"))


def _same_precision(left: Any, right: Any) -> tuple[Any, Any]:
    """Convert an integer and a double to doubles, because CEL does not compare them exactly as Python does."""
    if isinstance(left, float) is isinstance(right, float):
        return left, right
    return float(left), float(right)


def equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal in CEL: numbers across types, other values only within one type."""
    kind, other_kind = kind_of(left), kind_of(right)
    if kind in _NUMERIC and other_kind in _NUMERIC:
        left, right = _same_precision(left, right)
        return bool(left == right)
    if kind != other_kind:
        return False
    if kind == "list":
        return len(left) == len(right) and all(map(equal, left, right))
    if kind == "map":
        return left.keys() == right.keys() and all(equal(item, right[key]) for key, item in left.items())
    if kind == "optional_type":
        return left.present == right.present and equal(left.value, right.value)
    if kind == "semver":
        return bool(left.key() == right.key())
    return bool(left == right)


def less(left: Any, right: Any) -> bool:
    """Return whether a CEL value is less than another; raise EvalError if they are not comparable."""
    kind, other_kind = kind_of(left), kind_of(right)
    if kind in _NUMERIC and other_kind in _NUMERIC:
        left, right = _same_precision(left, right)
        return bool(left < right)
    if kind == other_kind and kind in _ORDERED:
        return bool(left < right)
    raise EvalError("no such overload")


def parse_duration(text: str) -> Duration:
    """Parse a duration in Go's notation (``1h30m``, ``-1.5s``); raise EvalError if it is invalid."""
    nano = go_duration(text)
    if nano is None:
        raise EvalError(f'invalid duration "{text}"')
    return Duration(nano)


_TIME: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9})\d*)?(?:([Zz])|([+-]\d{2}:\d{2}))"
)


def parse_timestamp(text: str) -> Timestamp:
    """Parse an RFC 3339 time; raise EvalError if it is invalid."""
    match = _TIME.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        zone = "+00:00" if match[4] else match[5]
        moment = datetime.fromisoformat(f"{match[1]}T{match[2]}{zone}")
    except ValueError:
        raise EvalError(f'invalid timestamp "{text}"') from None
    span = moment - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = span.days * 86400 + span.seconds
    offset = moment.utcoffset() or timedelta()
    nano = seconds * NANO + int((match[3] or "0").ljust(9, "0"))
    return Timestamp(nano, offset // timedelta(minutes=1))


def zone_of(name: str) -> timezone | Any:
    """Return a time zone by IANA name or by offset (``+02:00``); raise EvalError if it is unknown."""
    offset = re.fullmatch(r"([+-]?)(\d{1,2}):(\d{2})", name)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise EvalError(f"unknown time zone {name}") from None


def show_duration(value: Duration) -> str:
    """Format a duration like CEL's string(): in seconds."""
    seconds, fraction = divmod(abs(value.nano), NANO)
    text = str(seconds) + (f".{fraction:09d}".rstrip("0") if fraction else "")
    return ("-" if value.nano < 0 else "") + text + "s"


def show_timestamp(value: Timestamp) -> str:
    """Format a timestamp as RFC 3339, in its original zone, with as many digits as necessary."""
    seconds, fraction = divmod(value.nano, NANO)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, minutes=value.offset)
    hours, minutes = divmod(abs(value.offset), 60)
    zone = f"{'-' if value.offset < 0 else '+'}{hours:02d}:{minutes:02d}" if value.offset else "Z"
    # strftime does not pad years before 1000.
    text = moment.isoformat(timespec="seconds").partition("+")[0]
    return text + (f".{fraction:09d}".rstrip("0") if fraction else "") + zone


def show_double(value: float) -> str:
    """Format a double like Go's %g."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    return re.sub(r"e([+-])(\d)$", r"e\g<1>0\2", text)
