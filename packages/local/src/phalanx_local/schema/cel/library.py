"""CEL extension libraries of Kubernetes 1.36: strings (version 2), lists, sets, optionals."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, Final

from phalanx_local.schema.cel.errors import EvalError
from phalanx_local.schema.cel.functions import Overload, Table, member
from phalanx_local.schema.cel.text import format_text, quoted
from phalanx_local.schema.cel.types import BOOL, DYN, FREE, INT, LIST, STRING, STRINGS, Type, list_of, optional_of
from phalanx_local.schema.cel.values import (
    NONE,
    ZERO_TIME,
    Duration,
    Option,
    UInt,
    equal,
    kind_of,
    less,
)

#: Lists of comparable items.
_ORDERED: Final = "list(int|uint|double|bool|duration|timestamp|string|bytes)"


def _element(kinds: tuple[Type, ...]) -> Type:
    return kinds[0].item or DYN


def _list(kinds: tuple[Type, ...]) -> Type:
    return list_of(kinds[0].item or DYN)


def _maybe(kinds: tuple[Type, ...]) -> Type:
    return optional_of(_element(kinds))


def _flat(kinds: tuple[Type, ...]) -> Type:
    return kinds[0].item or LIST


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


#: Space characters of Go (Python has four more separators).
_SPACES: Final = "".join(chr(c) for c in range(0x3001) if chr(c).isspace() and not 0x1C <= c <= 0x1F)
_UPPER: Final = {ord(char): char.upper() for char in "abcdefghijklmnopqrstuvwxyz"}
_LOWER: Final = {ord(char.upper()): char for char in "abcdefghijklmnopqrstuvwxyz"}


def _strings() -> Table:
    string, strings, text = "string", "list(string)", STRING
    return {
        "charAt": [member((string, "int"), text, _char_at)],
        "indexOf": [
            member((string, string), INT, _index_of),
            member((string, string, "int"), INT, _index_of),
        ],
        "lastIndexOf": [
            member((string, string), INT, _last_index_of),
            member((string, string, "int"), INT, _last_index_of),
        ],
        "join": [member((strings,), text, _join), member((strings, string), text, _join)],
        "lowerAscii": [member((string,), text, lambda value: value.translate(_LOWER))],
        "upperAscii": [member((string,), text, lambda value: value.translate(_UPPER))],
        "replace": [
            member((string, string, string), text, _replace),
            member((string, string, string, "int"), text, _replace),
        ],
        "split": [member((string, string), STRINGS, _split), member((string, string, "int"), STRINGS, _split)],
        "substring": [
            member((string, "int"), text, _substring),
            member((string, "int", "int"), text, _substring),
        ],
        "trim": [member((string,), text, lambda value: value.strip(_SPACES))],
        "format": [member((string, "list"), text, format_text)],
        "strings.quote": [Overload((string,), text, quoted)],
    }


# lists and sets -------------------------------------------------------------------------------------------


def _is_sorted(items: list[Any]) -> bool:
    return all(not less(after, before) for before, after in itertools.pairwise(items))


def _sum(items: list[Any], zero: Any) -> Any:
    if not items:
        return zero
    if all(isinstance(item, Duration) for item in items):
        return Duration(sum(item.nano for item in items))
    if any(kind_of(item) not in ("int", "uint", "double") for item in items):
        raise EvalError("no such overload")
    total = sum(items)
    if isinstance(total, int) and not -(2**63) <= total < 2**64:
        raise EvalError("integer overflow")
    return UInt(total) if kind_of(items[0]) == "uint" else total


def _sum_from(zero: Any) -> Callable[[list[Any]], Any]:
    return lambda items: _sum(items, zero)


_ZEROS: Final = {"int": 0, "uint": UInt(0), "double": 0.0, "duration": Duration(0)}


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
    distinct: list[Any] = []
    for item in items:
        if not any(equal(item, known) for known in distinct):
            distinct.append(item)
    return distinct


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


def sort_by(items: list[Any], keys: list[Any]) -> list[Any]:
    """Sort the items by their keys; raise EvalError if the keys are not comparable."""
    rank = functools.cmp_to_key(_before)
    order: list[int] = sorted(range(len(items)), key=lambda index: rank(keys[index]))
    return [items[index] for index in order]


def _before(left: Any, right: Any) -> int:
    return -1 if less(left, right) else int(less(right, left))


_MAX_RANGE: Final = 1_000_000


def _range(count: int) -> list[int]:
    if count > _MAX_RANGE:
        raise EvalError("operation cancelled: actual cost limit exceeded")
    return list(range(count))


def _contains_all(items: list[Any], wanted: list[Any]) -> bool:
    return all(any(equal(item, other) for item in items) for other in wanted)


def _lists() -> Table:
    anything, sequence, nested = "list", "list(T)", "list(list(T))"
    pair = (sequence, sequence)
    return {
        "isSorted": [member((_ORDERED,), BOOL, _is_sorted)],
        "sum": [member((f"list({kind})",), _element, _sum_from(zero)) for kind, zero in _ZEROS.items()],
        "min": [member((_ORDERED,), _element, lambda items: _extreme(items, largest=False))],
        "max": [member((_ORDERED,), _element, lambda items: _extreme(items, largest=True))],
        "indexOf": [member((sequence, "T"), INT, _position)],
        "lastIndexOf": [member((sequence, "T"), INT, _last_position)],
        "slice": [member((anything, "int", "int"), _list, _slice)],
        "flatten": [member((nested,), _flat, _flatten), member((anything, "int"), LIST, _flatten)],
        "sort": [member((_ORDERED,), _list, lambda items: sort_by(items, items))],
        "@sortBy": [Overload((anything, _ORDERED), _list, sort_by)],
        "reverse": [member((anything,), _list, lambda items: items[::-1])],
        "distinct": [member((anything,), _list, _distinct)],
        "first": [member((anything,), _maybe, lambda items: _option(items[:1]))],
        "last": [member((anything,), _maybe, lambda items: _option(items[-1:]))],
        "lists.range": [Overload(("int",), list_of(INT), _range)],
        "sets.contains": [Overload(pair, BOOL, _contains_all)],
        "sets.equivalent": [Overload(pair, BOOL, lambda a, b: _contains_all(a, b) and _contains_all(b, a))],
        "sets.intersects": [Overload(pair, BOOL, lambda a, b: any(equal(x, y) for x in a for y in b))],
    }


# optionals ------------------------------------------------------------------------------------------------


def _option(values: list[Any]) -> Option:
    return Option(True, values[0]) if values else NONE


def _value(option: Option) -> Any:
    if not option.present:
        raise EvalError("optional.none() dereference")
    return option.value


def _is_zero(value: Any) -> bool:
    kind = kind_of(value)
    if kind == "timestamp":
        return bool(value == ZERO_TIME)
    if kind == "duration":
        return bool(value.nano == 0)
    return value is None or (kind not in ("optional_type", "type") and not value)


def _or_value(option: Option, other: Any) -> Any:
    return option.value if option.present else other


def _or(option: Option, other: Option) -> Option:
    return option if option.present else other


def _first_kind(kinds: tuple[Type, ...]) -> Type:
    return kinds[0]


def _unwrap(options: list[Any]) -> list[Any]:
    if not all(isinstance(option, Option) for option in options):
        raise EvalError("no such overload")
    return [option.value for option in options if option.present]


def _unwrapped(kinds: tuple[Type, ...]) -> Type:
    return list_of((kinds[0].item or DYN).item or DYN)


def _optionals() -> Table:
    option = "optional_type"

    def wrapped(kinds: tuple[Type, ...]) -> Type:
        return optional_of(kinds[0])

    return {
        "optional.of": [Overload(("any",), wrapped, lambda value: Option(True, value))],
        "optional.ofNonZeroValue": [
            Overload(("any",), wrapped, lambda value: NONE if _is_zero(value) else Option(True, value))
        ],
        "optional.none": [Overload((), optional_of(FREE), lambda: NONE)],
        "optional.unwrap": [Overload(("list(optional_type)",), _unwrapped, _unwrap)],
        "unwrapOpt": [member(("list(optional_type)",), _unwrapped, _unwrap)],
        "hasValue": [member((option,), BOOL, lambda value: value.present)],
        "value": [member((option,), _element, _value)],
        "orValue": [
            member(("optional_type(T)", "T"), _element, _or_value),
        ],
        "or": [
            member(("optional_type(T)", "optional_type(T)"), _first_kind, _or),
        ],
    }


def libraries() -> Table:
    """Return the functions of the CEL extension libraries by name; names of functions in a namespace contain a
    dot."""
    table: Table = {}
    for part in (_strings(), _lists(), _optionals()):
        for name, overloads in part.items():
            table.setdefault(name, []).extend(overloads)
    return table
