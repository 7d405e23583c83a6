"""Defragmentation as a feature of the cycle: when it runs, and for which waiting gangs and pods."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from phalanx.model.gang import GangKey
from phalanx.scheduling.defragmentation.runs import DefragmentationRuns
from phalanx.scheduling.framework.defragment_settings import DefragmentSettings
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.session.session import Session

#: A run searches room for this many waiting units, the first in queue order.
MOST_ATTEMPTED = 16


class Defragmentation(CyclePlugin):
    """Activates waiting gangs and pods for the action `defragment` within the windows of the policy."""

    name = "defragmentation"

    def __init__(self) -> None:
        self.runs = DefragmentationRuns()
        self._settings: DefragmentSettings | None = None
        self._next_wake: float | None = None
        self._changed = False

    def configure(self, policy: Policy) -> None:
        self._settings = policy.defragmentation
        # The first run has no due time before a cycle has computed it.
        self._changed = policy.defragmentation is not None

    def outdated(self) -> bool:
        return self._changed

    def next_due(self) -> float | None:
        return self._next_wake

    def advance(self, now: float) -> None:
        self._changed = False

    def wake(self, session: Session) -> Iterable[UnitKey]:
        """Return the waiting gangs and pods for which other pods can move now; after a window, those whose verdict
        still mentions it."""
        if self.runs.due(self._settings, session.now):
            first = sorted(session.queue.first_unschedulable(MOST_ATTEMPTED), key=lambda entry: entry[0])
            keys = (unit.key for _, unit in first if may_lack_room(session, unit))
            return list(islice(keys, MOST_ATTEMPTED))
        window = self.runs.window(self._settings, session.now)
        noted = list(self.runs.notes) if window is None or session.now < window.start else []
        if noted:
            self.runs.notes.clear()
        return noted

    def note(self, of: GangKey | str) -> str:
        return self.runs.note(of) if self._settings is not None else ""

    def published(self, session: Session) -> None:
        self._next_wake = self.runs.next_wake(self._settings, session.now)

    def confirm(self, version: int) -> None:
        """Record that the evictions booked up to `version` are stored and can be executed."""
        self._changed = self.runs.confirm(version) or self._changed


def may_lack_room(session: Session, unit: QueuedUnit) -> bool:
    """Return whether free resources are all that a waiting gang or pod lacks, by its last verdict."""
    demand = session.queue.demand_of(unit.key)
    return unit.starts_planned and demand is not None and demand.for_room
