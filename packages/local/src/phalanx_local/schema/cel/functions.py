"""Standard functions and operators of CEL, and the selection of overloads."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from phalanx.model.text.patterns import Pattern, PatternError, compile_pattern
from phalanx_local.schema.cel.errors import EvalError
from phalanx_local.schema.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    LIST,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    joined,
    matched,
)
from phalanx_local.schema.cel.values import (
    NANO,
    Duration,
    Timestamp,
    UInt,
    kind_of,
    less,
    parse_duration,
    parse_timestamp,
    show_double,
    show_duration,
    show_timestamp,
)

Result = Type | Callable[[tuple[Type, ...]], Type]


@dataclass(frozen=True, slots=True)
class Overload:
    """One overload of a CEL function: operand types (see `types.matched`), result type, implementation.

    ``receiver``: the first operand is the target before the dot.
    """

    wanted: tuple[str, ...]
    result: Result
    run: Callable[..., Any]
    receiver: bool = False

    def accepts(self, kinds: Sequence[Type]) -> bool:
        """Return whether operands of these static types can match the overload."""
        bound: dict[str, Type] = {}
        return len(kinds) == len(self.wanted) and all(
            matched(wanted, kind, bound) for kind, wanted in zip(kinds, self.wanted, strict=True)
        )

    def takes(self, kinds: Sequence[str]) -> bool:
        """Return whether operands of these runtime types match the overload."""
        return all(
            wanted in ("any", "T", kind) or kind in wanted.partition("(")[0].split("|")
            for kind, wanted in zip(kinds, self.wanted, strict=True)
        )

    def result_of(self, kinds: tuple[Type, ...]) -> Type:
        """Return the static type of the overload's result for operands of these types."""
        return self.result if isinstance(self.result, Type) else self.result(kinds)


Table = dict[str, list[Overload]]


def member(wanted: tuple[str, ...], result: Result, run: Callable[..., Any]) -> Overload:
    """Return the overload of a CEL member function, which is called on its first operand: `target.name(args)`."""
    return Overload(wanted, result, run, receiver=True)


def parses(parser: Callable[..., Any]) -> Callable[..., bool]:
    """Return a function that returns whether `parser` accepts its arguments without EvalError."""

    def check(*args: Any) -> bool:
        try:
            parser(*args)
        except EvalError:
            return False
        return True

    return check


def _int(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise EvalError("integer overflow")
    return value


def _uint(value: int) -> UInt:
    if not 0 <= value < 2**64:
        raise EvalError("unsigned integer overflow")
    return UInt(value)


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise EvalError("division by zero")
    return _int(_whole(left, right))


def _whole(left: int, right: int) -> int:
    """Return the integer quotient, truncated toward zero as in CEL."""
    quotient = abs(left) // abs(right)
    return -quotient if (left < 0) != (right < 0) else quotient


def _divide_unsigned(left: int, right: int) -> UInt:
    if right == 0:
        raise EvalError("division by zero")
    return UInt(int(left) // int(right))


def _modulo(left: int, right: int) -> int:
    if right == 0:
        raise EvalError("modulus by zero")
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _float_divide(left: float, right: float) -> float:
    if right == 0:
        return (
            math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
        )
    return left / right


def _span(nano: int) -> Duration:
    if not -(2**63) <= nano < 2**63:
        raise EvalError("duration overflow")
    return Duration(nano)


def _moment(nano: int, offset: int = 0) -> Timestamp:
    # Valid years are 0001 to 9999.
    if not -62135596800 * NANO <= nano < 253402300800 * NANO:
        raise EvalError("timestamp overflow")
    return Timestamp(nano, offset)


def _to_int(value: Any) -> int:
    if isinstance(value, Timestamp):
        return value.nano // NANO
    if isinstance(value, float):
        if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
            raise EvalError("range error converting double to int")
        return int(value)
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?\d+", value):
            raise EvalError(f'strconv.ParseInt: parsing "{value}": invalid syntax')
        return _int(int(value))
    return _int(int(value))


def _to_uint(value: Any) -> UInt:
    if isinstance(value, float):
        if math.isnan(value) or not 0 <= value < 2.0**64:
            raise EvalError("range error converting double to uint")
        return UInt(int(value))
    if isinstance(value, str):
        if not re.fullmatch(r"\d+", value):
            raise EvalError(f'strconv.ParseUint: parsing "{value}": invalid syntax')
        return _uint(int(value))
    return _uint(int(value))


def _to_double(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise EvalError(f'strconv.ParseFloat: parsing "{value}": invalid syntax') from None


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if value in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise EvalError(f'strconv.ParseBool: parsing "{value}": invalid syntax')


def to_text(value: Any) -> str:
    """Convert a value like the CEL function string()."""
    kind = kind_of(value)
    if kind == "string":
        return str(value)
    if kind == "bool":
        return "true" if value else "false"
    if kind in ("int", "uint"):
        return str(int(value))
    if kind == "double":
        return show_double(value)
    if kind == "bytes":
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise EvalError("invalid UTF-8 in bytes, cannot convert to string") from None
    if kind == "duration":
        return show_duration(value)
    if kind == "timestamp":
        return show_timestamp(value)
    return str(value)


def searched(pattern: str) -> Pattern:
    """Compile a regular expression for a search; raise EvalError if it is invalid."""
    try:
        return compile_pattern(pattern)
    except PatternError as error:
        raise EvalError(str(error)) from None


def _concatenated(kinds: tuple[Type, ...]) -> Type:
    return joined(kinds[0], kinds[1]) if kinds[0].kind == kinds[1].kind == "list" else LIST


_NUMBERS: Final = ("int", "uint", "double")
_ORDERED: Final = (*_NUMBERS, "bool", "string", "bytes", "duration", "timestamp")


def _orders(test: Callable[[Any, Any], bool]) -> list[Overload]:
    same = [Overload((kind, kind), BOOL, test) for kind in _ORDERED]
    mixed = [Overload((left, right), BOOL, test) for left in _NUMBERS for right in _NUMBERS if left != right]
    return same + mixed


_DATE_PARTS: Final[dict[str, Callable[[Any], int]]] = {
    "getFullYear": lambda moment: int(moment.year),
    "getMonth": lambda moment: int(moment.month) - 1,
    "getDayOfYear": lambda moment: int(moment.timetuple().tm_yday) - 1,
    "getDayOfMonth": lambda moment: int(moment.day) - 1,
    "getDate": lambda moment: int(moment.day),
    "getDayOfWeek": lambda moment: int(moment.isoweekday()) % 7,
}
_CLOCK_PARTS: Final[dict[str, tuple[Callable[[Any], int], Callable[[Duration], int]]]] = {
    "getHours": (lambda moment: int(moment.hour), lambda span: _whole(span.nano, 3600 * NANO)),
    "getMinutes": (lambda moment: int(moment.minute), lambda span: _whole(span.nano, 60 * NANO)),
    "getSeconds": (lambda moment: int(moment.second), lambda span: _whole(span.nano, NANO)),
    "getMilliseconds": (
        lambda moment: int(moment.microsecond) // 1000,
        lambda span: _whole(span.nano, 10**6),
    ),
}


def _times() -> dict[str, list[Overload]]:
    table: dict[str, list[Overload]] = {}

    def at(part: Callable[[Any], int]) -> tuple[Callable[[Timestamp], int], Callable[[Timestamp, str], int]]:
        return (lambda time: part(time.local())), (lambda time, zone: part(time.local(zone)))

    for name, part in _DATE_PARTS.items():
        plain, zoned = at(part)
        table[name] = [
            Overload(("timestamp",), INT, plain, True),
            Overload(("timestamp", "string"), INT, zoned, True),
        ]
    for name, (part, of_span) in _CLOCK_PARTS.items():
        plain, zoned = at(part)
        table[name] = [
            Overload(("timestamp",), INT, plain, True),
            Overload(("timestamp", "string"), INT, zoned, True),
            Overload(("duration",), INT, of_span, True),
        ]
    return table


def standard() -> Table:
    """Return the standard CEL functions and operators by name, as a new table for the libraries to extend."""
    sizes = [Overload((kind,), INT, len) for kind in ("string", "bytes", "list", "map")]
    table: dict[str, list[Overload]] = {
        "size": [*sizes, *(Overload(over.wanted, INT, len, True) for over in sizes)],
        "_==_": [Overload(("any", "any"), BOOL, lambda left, right: left == right)],
        "_!=_": [Overload(("any", "any"), BOOL, lambda left, right: left != right)],
        "_<_": _orders(less),
        "_>_": _orders(lambda left, right: less(right, left)),
        "_<=_": _orders(lambda left, right: not less(right, left) and left == left),
        "_>=_": _orders(lambda left, right: not less(left, right) and left == left),
        "_+_": [
            Overload(("int", "int"), INT, lambda a, b: _int(a + b)),
            Overload(("uint", "uint"), UINT, lambda a, b: _uint(int(a) + int(b))),
            Overload(("double", "double"), DOUBLE, lambda a, b: a + b),
            Overload(("string", "string"), STRING, lambda a, b: a + b),
            Overload(("bytes", "bytes"), BYTES, lambda a, b: a + b),
            Overload(("list(T)", "list(T)"), _concatenated, lambda a, b: [*a, *b]),
            Overload(("timestamp", "duration"), TIMESTAMP, lambda a, b: _moment(a.nano + b.nano, a.offset)),
            Overload(("duration", "timestamp"), TIMESTAMP, lambda a, b: _moment(a.nano + b.nano, b.offset)),
            Overload(("duration", "duration"), DURATION, lambda a, b: _span(a.nano + b.nano)),
        ],
        "_-_": [
            Overload(("int", "int"), INT, lambda a, b: _int(a - b)),
            Overload(("uint", "uint"), UINT, lambda a, b: _uint(int(a) - int(b))),
            Overload(("double", "double"), DOUBLE, lambda a, b: a - b),
            Overload(("timestamp", "timestamp"), DURATION, lambda a, b: _span(a.nano - b.nano)),
            Overload(("timestamp", "duration"), TIMESTAMP, lambda a, b: _moment(a.nano - b.nano, a.offset)),
            Overload(("duration", "duration"), DURATION, lambda a, b: _span(a.nano - b.nano)),
        ],
        "_*_": [
            Overload(("int", "int"), INT, lambda a, b: _int(a * b)),
            Overload(("uint", "uint"), UINT, lambda a, b: _uint(int(a) * int(b))),
            Overload(("double", "double"), DOUBLE, lambda a, b: a * b),
        ],
        "_/_": [
            Overload(("int", "int"), INT, _divide),
            Overload(("uint", "uint"), UINT, _divide_unsigned),
            Overload(("double", "double"), DOUBLE, _float_divide),
        ],
        "_%_": [
            Overload(("int", "int"), INT, _modulo),
            Overload(("uint", "uint"), UINT, lambda a, b: _uint(_modulo(int(a), int(b)))),
        ],
        "-_": [
            Overload(("int",), INT, lambda a: _int(-a)),
            Overload(("double",), DOUBLE, lambda a: -a),
        ],
        "int": [Overload((kind,), INT, _to_int) for kind in (*_NUMBERS, "string", "timestamp")],
        "uint": [Overload((kind,), UINT, _to_uint) for kind in (*_NUMBERS, "string")],
        "double": [Overload((kind,), DOUBLE, _to_double) for kind in (*_NUMBERS, "string")],
        "bool": [Overload((kind,), BOOL, _to_bool) for kind in ("bool", "string")],
        "string": [
            Overload((kind,), STRING, to_text)
            for kind in (*_NUMBERS, "string", "bool", "bytes", "duration", "timestamp")
        ],
        "bytes": [
            Overload(("bytes",), BYTES, lambda value: value),
            Overload(("string",), BYTES, lambda value: value.encode()),
        ],
        "duration": [
            Overload(("string",), DURATION, parse_duration),
            Overload(("duration",), DURATION, lambda value: value),
            Overload(("int",), DURATION, lambda value: _span(value * NANO)),
        ],
        "timestamp": [
            Overload(("string",), TIMESTAMP, parse_timestamp),
            Overload(("timestamp",), TIMESTAMP, lambda value: value),
            Overload(("int",), TIMESTAMP, lambda value: _moment(value * NANO)),
        ],
        "dyn": [Overload(("any",), DYN, lambda value: value)],
        "contains": [Overload(("string", "string"), BOOL, lambda text, part: part in text, True)],
        "startsWith": [Overload(("string", "string"), BOOL, lambda text, part: text.startswith(part), True)],
        "endsWith": [Overload(("string", "string"), BOOL, lambda text, part: text.endswith(part), True)],
        "matches": [
            Overload(("string", "string"), BOOL, lambda text, pattern: searched(pattern).found_in(text), True),
            Overload(("string", "string"), BOOL, lambda text, pattern: searched(pattern).found_in(text)),
        ],
    }
    table.update(_times())
    return table
