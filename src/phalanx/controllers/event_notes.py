"""Tells of objects in events, each note once: a controller looks at an object far more often than there is news."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.controllers.controller import ControllerContext
from phalanx.dialects.core import Metadata
from phalanx.jobs.notes import EventNote
from phalanx.kube.events import ObjectReference
from phalanx.kube.paths import Resource

# Subjects of one object that are remembered: a flow has many jobs, a CronJob endlessly many runs.
_MOST = 64


class EventNotes:
    """Of the objects of one kind."""

    def __init__(self, context: ControllerContext, resource: Resource) -> None:
        self._context = context
        self._resource = resource
        # By the object's uid, then by reason and subject.
        self._told: dict[str, dict[tuple[str, str], str]] = {}

    def forget(self, uid: str) -> None:
        self._told.pop(uid, None)

    def record(self, metadata: Metadata, notes: Iterable[EventNote]) -> None:
        for each in notes:
            told = self._told.setdefault(metadata.uid, {})
            about = (each.reason, each.subject)
            if told.get(about) == each.note:
                continue
            told.pop(about, None)
            told[about] = each.note
            if len(told) > _MOST:
                del told[next(iter(told))]
            regarding = ObjectReference(
                self._resource.kind,
                metadata.name,
                metadata.namespace,
                metadata.uid,
                self._resource.api_version,
                metadata.resource_version,
            )
            self._context.recorder.record(
                regarding, type=each.type, reason=each.reason, action=each.reason, note=each.note
            )
