"""The two APIs that take events: one storage behind them, and different words for the same."""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from phalanx.kube.paths import Resource
from phalanx.kube.timestamps import format_micro_time, format_time

__all__ = ["CoreForm", "EventForm", "EventsForm", "ObjectReference"]


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""


class EventForm(Protocol):
    """``events`` is where they are created. The fields are those that the two APIs call differently."""

    @property
    def events(self) -> Resource: ...

    def first(self, controller: str, regarding: ObjectReference, note: str, now: float) -> dict[str, Any]: ...

    def counted(self, count: int, last: float) -> dict[str, Any]:
        """What changes when it happened again."""
        ...


class EventsForm:
    """events.k8s.io/v1, as kube-scheduler writes: exact moments, and what repeats is a series."""

    events: Final = Resource("events.k8s.io", "v1", "events", "Event")

    def first(self, controller: str, regarding: ObjectReference, note: str, now: float) -> dict[str, Any]:
        return {
            "apiVersion": self.events.api_version,
            "kind": self.events.kind,
            "eventTime": format_micro_time(now),
            "reportingController": controller,
            "regarding": regarding,
            "note": note,
        }

    def counted(self, count: int, last: float) -> dict[str, Any]:
        return {"series": {"count": count, "lastObservedTime": format_micro_time(last)}}


class CoreForm:
    """core/v1, as Volcano's and Kubernetes' own controllers write: programs that wait for events of jobs look at
    ``lastTimestamp``, which events of the newer API do not have."""

    events: Final = Resource("", "v1", "events", "Event")

    def first(self, controller: str, regarding: ObjectReference, note: str, now: float) -> dict[str, Any]:
        moment = format_time(now)
        return {
            "apiVersion": self.events.api_version,
            "kind": self.events.kind,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
            "source": {"component": controller},
            "reportingComponent": controller,
            "involvedObject": regarding,
            "message": note,
        }

    def counted(self, count: int, last: float) -> dict[str, Any]:
        return {"count": count, "lastTimestamp": format_time(last)}
