"""Tables for `kubectl get`, rendered by the server (meta.k8s.io Table)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from phalanx_local.clock import Clock
from phalanx_local.endpoints.listing import ServedPage, list_metadata
from phalanx_local.errors import bad_request
from phalanx_local.objects import Json, encode
from phalanx_local.printers import printer_of
from phalanx_local.registry.resources import Version
from phalanx_local.storage.records import Record, event_line, view

Include = Literal["None", "Metadata", "Object"]


def included(query: Mapping[str, str]) -> Include:
    """Parse `includeObject`: None, Metadata or Object of each row of a Table. Raise 400 for other values."""
    asked = query.get("includeObject", "") or "Metadata"
    if asked == "Metadata":
        return "Metadata"
    if asked == "None":
        return "None"
    if asked == "Object":
        return "Object"
    raise bad_request(
        f'includeObject: Unsupported value: "{asked}": supported values: "Metadata", "None", "Object"'
    )


def table_of(page: ServedPage, version: Version, form: str, include: Include, now: float) -> Json:
    """Return the meta.k8s.io Table of a list."""
    table = _table(page.records, version, form, include, now)
    table["metadata"] = list_metadata(page)
    return table


def table_of_one(record: Record, version: Version, form: str, include: Include, now: float) -> Json:
    """Return the meta.k8s.io Table of one object."""
    table = _table([record], version, form, include, now)
    table["metadata"] = {"resourceVersion": str(record.revision)}
    return table


def _table(records: list[Record], version: Version, form: str, include: Include, now: float) -> Json:
    printer = printer_of(version)
    rows = []
    for record in records:
        obj = view(record, version)
        rows.append({"cells": printer.cells(obj, now), "object": _row_object(obj, form, include)})
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{form}",
        "metadata": {},
        "columnDefinitions": [column.definition() for column in printer.columns],
        "rows": rows,
    }


def _row_object(obj: Json, form: str, include: Include) -> Json | None:
    if include == "Object":
        return obj
    if include == "None":
        return None
    return partial_object(obj, form)


def partial_object(obj: Json, form: str = "v1") -> Json:
    """Return the metadata of an object as a PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{form}",
        "metadata": obj["metadata"],
    }


def partial(record: Record) -> bytes:
    """Return the metadata of a stored object as an encoded PartialObjectMetadata."""
    return encode(partial_object(record.load()))


def partial_list(page: ServedPage, version: Version) -> bytes:
    """Return a page of a list as a PartialObjectMetadataList."""
    return encode(
        {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": list_metadata(page),
            "items": [partial_object(record.load()) for record in page.records],
        }
    )


def partial_line(kind: str, record: Record) -> bytes:
    """Return a watch event with object metadata only."""
    return event_line(kind, partial(record))


class TableLines:
    """Watch events as Tables of one row; only the first event contains the column definitions."""

    def __init__(self, version: Version, form: str, include: Include, clock: Clock) -> None:
        self._version = version
        self._form = form
        self._include: Include = include
        self._clock = clock
        self._headed = False

    def line(self, kind: str, record: Record) -> bytes:
        table: dict[str, Any] = table_of_one(record, self._version, self._form, self._include, self._clock.now())
        if self._headed:
            table["columnDefinitions"] = None
        self._headed = True
        return event_line(kind, encode(table))
