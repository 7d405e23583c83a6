"""When nodes are in maintenance: windows that somebody has declared, and what nodes say about themselves."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from phalanx.model.recurrence import Occurrence, Recurrence, merged
from phalanx.model.selectors import Requirement

NO_END: Final = 2**62
"""An end that nobody knows."""

CORDONED_BY = "phalanx.dev/cordoned-by"
"""Annotation of a node that we have cordoned: uid of the window and start of the occurrence, with a dot between."""


class Before(enum.StrEnum):
    """What is placed on the nodes of a window before it starts."""

    LIMIT = "limit"  # what ends in time by its limit
    SURPLUS = "surplus"  # that, and members above their gangs' minimum: they leave at the start
    ALL = "all"


class AtStart(enum.StrEnum):
    """What becomes of the nodes of a window, and of the pods there, when it starts."""

    CORDON = "cordon"
    EVICT = "evict"  # and cordon
    LEAVE = "leave"


class MaintenanceWindow(msgspec.Struct, frozen=True):
    """A time in which nodes are not to be used: those that `names` names and those that `selector` selects (None:
    none). The first occurrence is [start, end) in seconds since the epoch; the others follow from `recurrence`.

    `before` holds from `close_before` seconds ahead of the start on, 0: however far ahead. Whoever is evicted at
    the start is told `notice` seconds before. One with a `problem` closes nothing.
    """

    name: str
    uid: str = ""
    names: tuple[str, ...] = ()
    selector: tuple[Requirement, ...] | None = None
    start: int = 0
    end: int = 0
    recurrence: Recurrence | None = None
    before: Before = Before.LIMIT
    close_before: int = 0
    at_start: AtStart = AtStart.CORDON
    notice: int = 0
    problem: str = ""

    @property
    def title(self) -> str:
        return f"MaintenanceWindow {self.name}"

    def spans(self, begin: int, end: int) -> tuple[Occurrence, ...]:
        """When its nodes are in maintenance within [begin, end), in order; occurrences that touch are one."""
        if self.problem:
            return ()
        if self.recurrence is not None:
            return merged(self.recurrence.occurrences(begin, end))
        inside = self.start < end and self.end > begin
        return (Occurrence(self.start, self.end),) if inside else ()

    def next_span(self, moment: int) -> Occurrence | None:
        """The one that is under way, else the next; None when all are over."""
        now = self.spans(moment, moment + 1)
        if now or self.problem:
            return now[0] if now else None
        if self.recurrence is None:
            return Occurrence(self.start, self.end) if self.start > moment else None
        start = self.recurrence.next_start(moment)
        return Occurrence(start, start + self.recurrence.duration) if start is not None else None


class MaintenanceSignal(msgspec.Struct, frozen=True):
    """That a node says of itself, or its maker says of it, that it goes at `start` (seconds since the epoch, 0 for
    now), nobody knows for how long. `source` is for people."""

    source: str
    start: int
