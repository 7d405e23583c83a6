"""Conversion of JSON values to CEL values: times, durations, bytes and doubles, also in lists and maps."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final

from phalanx_local.schema.cel.errors import EvalError
from phalanx_local.schema.cel.types import Type
from phalanx_local.schema.cel.values import Duration, parse_timestamp
from phalanx_local.schema.durations import format_duration

Convert = Callable[[Any], Any]


def converter(kind: Type) -> Convert | None:
    """Return the conversion from a JSON value to a CEL value of the type; None if none is necessary.

    Objects are not converted: their fields are converted when they are read.
    """
    if kind.convert:
        return _CONVERTERS[kind.convert]
    inner = converter(kind.item) if kind.kind in ("list", "map") and kind.item is not None else None
    if inner is None:
        return None
    return _each_item(inner) if kind.kind == "list" else _each_value(inner)


def _each_item(inner: Convert) -> Convert:
    return lambda value: [inner(item) for item in value] if isinstance(value, list) else value


def _each_value(inner: Convert) -> Convert:
    return lambda value: {key: inner(item) for key, item in value.items()} if isinstance(value, dict) else value


def _to_double(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _to_timestamp(value: Any) -> Any:
    return parse_timestamp(value) if isinstance(value, str) else value


def _to_date(value: Any) -> Any:
    return parse_timestamp(value + "T00:00:00Z") if isinstance(value, str) else value


def _to_duration(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    nano = format_duration(value)
    if nano is None:
        raise EvalError(f"unable to parse {value} as duration")
    return Duration(nano)


def _to_bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    except (binascii.Error, ValueError):
        raise EvalError("illegal base64 data") from None


_CONVERTERS: Final[dict[str, Convert]] = {
    "double": _to_double,
    "timestamp": _to_timestamp,
    "date": _to_date,
    "duration": _to_duration,
    "bytes": _to_bytes,
}
