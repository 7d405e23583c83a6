"""Evicted pods with reasons, from eviction events; kept after the pods are deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from phalanx.dashboard.rows.entries import EvictionRow
from phalanx.dashboard.tables import RowTable
from phalanx.kube.changes import Change, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.failures import Failures
from phalanx.kube.paths import Resource
from phalanx.kube.reflector import Reflector
from phalanx.model.decisions import EvictionReason
from phalanx.model.text.decoding import MAX_NAME
from phalanx.model.verdict import NamedObject

EVENTS = Resource("", "v1", "events", "Event")
_MOST = 5000
_MOST_TEXT = 2000


class _About(msgspec.Struct, rename="camel", frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Related(msgspec.Struct, rename="camel", frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str = ""
    resource_version: str = ""


class EvictionEvent(msgspec.Struct, rename="camel"):
    """Fields of an eviction's Event; `related` is the preemptor's object."""

    metadata: _Metadata
    involved_object: _About = _About()
    related: _Related | None = None
    reason: str = ""
    message: str | None = ""
    event_time: str | None = ""
    last_timestamp: str | None = ""


class Evictions:
    """Watcher of the Events about evictions, by any scheduler or user. `gang_of` returns the gang of a pod uid."""

    def __init__(
        self, client: KubeClient, table: RowTable, gang_of: Callable[[str], str], failures: Failures
    ) -> None:
        self._table = table
        self._gang_of = gang_of
        self.reflectors: list[Reflector[Any]] = [
            Reflector(
                client,
                EVENTS,
                _decode,
                self._take_in,
                field_selector=f"reason={reason.value}",
                optional=True,
                failures=failures,
            )
            for reason in EvictionReason
        ]

    def _take_in(self, change: Change[EvictionEvent]) -> None:
        if not isinstance(change, Upsert) or change.object.involved_object.kind != "Pod":
            return
        event, about = change.object, change.object.involved_object
        when = event.event_time or event.last_timestamp or event.metadata.creation_timestamp
        moment = str(when).rstrip("Z").partition(".")[0]
        row = EvictionRow(
            id=change.uid or f"{about.namespace}/{event.metadata.name}",
            when=f"{moment}Z" if moment else "",
            namespace=about.namespace,
            pod=about.name,
            gang=self._gang_of(about.uid),
            reason=event.reason,
            message=(event.message or "")[:_MOST_TEXT],
            preemptor=_preemptor(event.related),
        )
        self._table.put(row.id, row, row.namespace)
        if len(self._table) > _MOST:
            self._table.drop(next(iter(self._table.ids())))


def _preemptor(related: _Related | None) -> NamedObject | None:
    if related is None or not related.name or len(related.name) > MAX_NAME or len(related.namespace) > MAX_NAME:
        return None
    return NamedObject(related.kind[:MAX_NAME], related.name, related.namespace)


def _decode(raw: bytes) -> EvictionEvent:
    return msgspec.json.decode(raw, type=EvictionEvent)
