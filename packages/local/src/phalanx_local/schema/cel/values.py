"""Runtime values beyond those of JSON, and what it means for values to be equal or ordered.

JSON values stand for themselves: int, float (double), bool, str, bytes, None, list, dict.
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
    """An unsigned 64-bit integer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time in nanoseconds."""

    nano: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point in time in nanoseconds since the epoch; ``offset`` (minutes east) is how it was written."""

    nano: int
    offset: int = field(default=0, compare=False)

    def local(self, zone: str = "") -> datetime:
        """The point on the clock of a time zone (UTC by default; microseconds are cut off below)."""
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.nano // 1000)
        return moment.astimezone(zone_of(zone)) if zone else moment


#: The first moment of the year 1, Go's zero time.
ZERO_TIME: Final = Timestamp(-62135596800 * NANO)


@dataclass(frozen=True, slots=True)
class Option:
    """An optional value."""

    present: bool
    value: Any = None


NONE: Final = Option(False)


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as a value: what ``type(x)`` returns and what ``int``, ``string`` ... stand for."""

    name: str


@dataclass(frozen=True, slots=True)
class StringFormat:
    """A named string format (``format.dns1123Label()``)."""

    name: str


@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version; ``pre`` holds the identifiers of the pre-release."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()
    build: str = ""

    def key(self) -> tuple[Any, ...]:
        """What versions are ordered by (build metadata does not count)."""
        parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre)
        return (self.major, self.minor, self.patch, not self.pre, parts)


@dataclass(frozen=True, slots=True)
class Check:
    """A question to the authorizer: about a resource, or with a path about a URL that is none."""

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
    """What asks for the user of a request, or for the service account (namespace, name)."""

    decide: Callable[[Check, str], tuple[bool, str]]
    account: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """The authorizer's answer."""

    allowed: bool
    reason: str


def kind_of(value: Any) -> str:
    """The name of a value's type."""
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

#: Kinds as error texts and ``type()`` show them.
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
    """An integer and a double are compared as doubles, not exactly as Python does it."""
    if isinstance(left, float) is isinstance(right, float):
        return left, right
    return float(left), float(right)


def equal(left: Any, right: Any) -> bool:
    """CEL equality: numbers compare across their types, values of different kinds differ."""
    kind, other = kind_of(left), kind_of(right)
    if kind in _NUMERIC and other in _NUMERIC:
        left, right = _same_precision(left, right)
        return bool(left == right)
    if kind != other:
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
    """Whether a value comes before another of a comparable type; EvalError when they cannot be compared."""
    kind, other = kind_of(left), kind_of(right)
    if kind in _NUMERIC and other in _NUMERIC:
        left, right = _same_precision(left, right)
        return bool(left < right)
    if kind == other and kind in _ORDERED:
        return bool(left < right)
    raise EvalError("no such overload")


def parse_duration(text: str) -> Duration:
    """A duration as Go writes it (``1h30m``, ``-1.5s``); EvalError when it is none."""
    nano = go_duration(text)
    if nano is None:
        raise EvalError(f'invalid duration "{text}"')
    return Duration(nano)


_TIME: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9})\d*)?(?:([Zz])|([+-]\d{2}:\d{2}))"
)


def parse_timestamp(text: str) -> Timestamp:
    """An RFC 3339 time; EvalError when it is none."""
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
    """A time zone by IANA name or by offset (``+02:00``); EvalError when there is none."""
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
    """A duration as CEL's string() writes it: seconds."""
    seconds, rest = divmod(abs(value.nano), NANO)
    text = str(seconds) + (f".{rest:09d}".rstrip("0") if rest else "")
    return ("-" if value.nano < 0 else "") + text + "s"


def show_timestamp(value: Timestamp) -> str:
    """A timestamp as RFC 3339, in the zone that it was written in, with as many digits as needed."""
    seconds, rest = divmod(value.nano, NANO)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, minutes=value.offset)
    hours, minutes = divmod(abs(value.offset), 60)
    zone = f"{'-' if value.offset < 0 else '+'}{hours:02d}:{minutes:02d}" if value.offset else "Z"
    # The years before 1000 are not padded by strftime.
    text = moment.isoformat(timespec="seconds").partition("+")[0]
    return text + (f".{rest:09d}".rstrip("0") if rest else "") + zone


def show_double(value: float) -> str:
    """A double as Go's %g prints it."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    return re.sub(r"e([+-])(\d)$", r"e\g<1>0\2", text)
