"""MaintenanceWindow of phalanx.dev: times at which nodes are unavailable."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from phalanx.dialects.api_groups import PHALANX
from phalanx.dialects.enricher import Changes, PodEnricher
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.reader import Document, ObjectReader, is_whole
from phalanx.dialects.warnings import ObjectRef, ObjectWarning, ObjectWarnings
from phalanx.dialects.window_fields import read_length, read_nodes, read_recurrence, read_span, read_word
from phalanx.model.events import MaintenanceWindowRemoved, MaintenanceWindowUpdated
from phalanx.model.gang import GroupRef
from phalanx.model.maintenance import AtStart, Before, MaintenanceWindow

MAINTENANCE_WINDOWS = WantedKind(PHALANX, "maintenancewindows", "MaintenanceWindow", ("v1alpha1",))
INVALID = "InvalidMaintenanceWindow"

_NOTICE = 300


class WindowReader(ObjectReader):
    code = INVALID


def read_window(resource: ServedKind, document: Document) -> MaintenanceWindow:
    """Decode a MaintenanceWindow. An unreadable field becomes its problem, and the window closes no node."""
    reader = WindowReader(resource, document)
    names, selector = read_nodes(reader)
    start, end = read_span(reader)
    at_start = read_word(reader, "atStart", AtStart, AtStart.CORDON)
    before = read_word(reader, "before", Before, Before.LIMIT)
    if before is Before.SURPLUS and at_start is not AtStart.EVICT:
        reader.refuse("spec.before", before, "write atStart: evict with it: else surplus members are not evicted")
    return MaintenanceWindow(
        name=reader.ref.name,
        uid=reader.ref.uid,
        names=names,
        selector=selector,
        start=start,
        end=end,
        recurrence=read_recurrence(reader, start, end) if not reader.problem else None,
        before=before,
        close_before=read_length(reader, "closeBefore", 0),
        at_start=at_start,
        notice=read_length(reader, "notice", _NOTICE),
        problem=reader.problem.message if reader.problem else "",
    )


class SeenWindow(msgspec.Struct, frozen=True):
    """Last seen state of a MaintenanceWindow object; the status only serves to find changed fields."""

    ref: GroupRef
    generation: int
    status: Mapping[str, Any]


class MaintenanceWindows(PodEnricher):
    """Processes MaintenanceWindows; `seen` has the last state of their objects by name."""

    kinds = (MAINTENANCE_WINDOWS,)

    def __init__(self, warnings: ObjectWarnings) -> None:
        self._object_warnings = warnings
        self._problems: dict[str, str] = {}
        self.seen: dict[str, SeenWindow] = {}

    def updated(self, kind: ServedKind, document: Document) -> Changes:
        reader = ObjectReader(kind, document)
        generation = reader.metadata.get("generation")
        self.seen[reader.ref.name] = SeenWindow(
            reader.ref, generation if is_whole(generation) else 0, reader.status
        )
        return self._changes_of(kind, read_window(kind, document))

    def removed(self, kind: ServedKind, namespace: str, name: str) -> Changes:
        self.seen.pop(name, None)
        if self._problems.pop(name, None) is None:
            return [], set()
        return [MaintenanceWindowRemoved(name)], set()

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> Changes:
        return self._changes_of(kind, MaintenanceWindow(name, uid, problem=f"it cannot be read: {error}"))

    def unserved(self, kind: ServedKind) -> Changes:
        names, self._problems = sorted(self._problems), {}
        self.seen.clear()
        return [MaintenanceWindowRemoved(name) for name in names], set()

    def _changes_of(self, kind: ServedKind, window: MaintenanceWindow) -> Changes:
        name, last = window.name, self._problems.get(window.name, "")
        self._problems[name] = window.problem
        if window.problem and window.problem != last:
            about = ObjectRef(kind.api_version, kind.kind, "", name, window.uid)
            self._object_warnings.add(
                ObjectWarning(about, "Warning", INVALID, window.problem),
                partial(self._is_current, name, window.problem),
            )
        return [MaintenanceWindowUpdated(window)], set()

    def _is_current(self, name: str, problem: str) -> bool:
        return self._problems.get(name) == problem
