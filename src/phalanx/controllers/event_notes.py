"""Events of controllers, each note once per object, because controllers reconcile more often than the state
changes."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.controllers.controller import ControllerContext
from phalanx.dialects.core import Metadata
from phalanx.jobs.notes import EventNote
from phalanx.kube.events import ObjectReference
from phalanx.kube.paths import Resource

# Maximum number of recorded subjects per object: a CronJob has an unlimited number of runs.
_MAX_SUBJECTS = 64


class EventNotes:
    """Notes of the Events that a controller has recorded on the objects of one kind."""

    def __init__(self, context: ControllerContext, resource: Resource) -> None:
        self._context = context
        self._resource = resource
        # Recorded notes by the object's uid, then by reason and subject.
        self._recorded: dict[str, dict[tuple[str, str], str]] = {}

    def forget(self, uid: str) -> None:
        self._recorded.pop(uid, None)

    def record(self, metadata: Metadata, notes: Iterable[EventNote]) -> None:
        for note in notes:
            recorded = self._recorded.setdefault(metadata.uid, {})
            subject = (note.reason, note.subject)
            if recorded.get(subject) == note.note:
                continue
            recorded.pop(subject, None)
            recorded[subject] = note.note
            if len(recorded) > _MAX_SUBJECTS:
                del recorded[next(iter(recorded))]
            regarding = ObjectReference(
                self._resource.kind,
                metadata.name,
                metadata.namespace,
                metadata.uid,
                self._resource.api_version,
                metadata.resource_version,
            )
            self._context.recorder.record(
                regarding, type=note.type, reason=note.reason, action=note.reason, note=note.note, once=True
            )
