"""`kubectl get` columns of custom resources, as JSONPaths into the object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.model.text.jsonpath import Path, parse_path
from phalanx_local.clock import parse_timestamp
from phalanx_local.objects import Json, encode, metadata
from phalanx_local.printers.base import NAME, Printer, human_duration
from phalanx_local.registry.resources import Column


def custom_printer(columns: Sequence[Column]) -> Printer:
    """Return the `kubectl get` printer of a CRD's additionalPrinterColumns; the name is always the first column."""
    paths = [parse_path(column.json_path) for column in columns]

    def cells(obj: Json, now: float) -> list[Any]:
        row: list[Any] = [metadata(obj).get("name", "")]
        row.extend(_cell(column, path, obj, now) for column, path in zip(columns, paths, strict=True))
        return row

    return Printer((NAME, *columns), cells)


def _cell(column: Column, path: Path, obj: Json, now: float) -> Any:
    values = path.find(obj)
    if not values:
        return None
    value = values[0]
    if column.type == "date":
        then = parse_timestamp(value)
        return human_duration(now - then) if then is not None else "<unknown>"
    if column.type == "integer":
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if column.type == "number":
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if column.type == "boolean":
        return value if isinstance(value, bool) else None
    if len(values) > 1:
        return ",".join(_text(item) for item in values)
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return encode(value).decode()
