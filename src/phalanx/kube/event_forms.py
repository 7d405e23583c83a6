"""The two event APIs: one storage with different field names."""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from phalanx.kube.paths import Resource
from phalanx.kube.timestamps import format_micro_time, format_time

__all__ = ["CoreForm", "EventForm", "EventsForm", "ObjectReference"]


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Reference from an Event to the object that it is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""


class EventForm(Protocol):
    """Interface of an Event API: ``events`` is the resource to create in; the methods return the fields whose names
    differ."""

    @property
    def events(self) -> Resource: ...

    def first(self, controller: str, regarding: ObjectReference, note: str, now: float) -> dict[str, Any]: ...

    def counted(self, count: int, last: float) -> dict[str, Any]:
        """Return the changed fields of an Event that occurred again."""
        ...


class EventsForm:
    """Fields of Events in events.k8s.io/v1, as kube-scheduler writes them: times with microseconds, and a series
    for repeated events."""

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
    """Fields of Events in core/v1, as the controllers of Volcano and Kubernetes write them.

    Programs that wait for events of jobs read ``lastTimestamp``, which the newer API does not fill in.
    """

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
