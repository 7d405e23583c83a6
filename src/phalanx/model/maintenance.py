"""Maintenance of nodes: maintenance windows of users, and maintenance signals of the nodes themselves."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from phalanx.model.recurrence import Occurrence, Recurrence, merged
from phalanx.model.selectors import Requirement

NO_END: Final = 2**62
"""End of a window without a known end."""

CORDONED_BY = "phalanx.dev/cordoned-by"
"""Annotation of a node that Phalanx cordoned: uid of the window and start of the occurrence, joined by a dot."""


class Before(enum.StrEnum):
    """Choice of the pods that can be placed on a maintenance window's nodes before it starts."""

    LIMIT = "limit"  # pods with a run-time limit that ends in time
    SURPLUS = "surplus"  # also surplus members of gangs, which are evicted at the start
    ALL = "all"


class AtStart(enum.StrEnum):
    """Action for the nodes of a maintenance window and their pods, at its start."""

    CORDON = "cordon"
    EVICT = "evict"  # evict the pods and cordon
    LEAVE = "leave"


class MaintenanceWindow(msgspec.Struct, frozen=True):
    """Maintenance window: time in which nodes are not used: nodes in `names`, and nodes that `selector` matches
    (None: no node).

    The first occurrence is [start, end) in seconds since the epoch; `recurrence` adds further ones. `before`
    applies from `close_before` seconds before the start on (0: always). Pods that are evicted at the start are
    notified
    `notice` seconds before the start. A window with a `problem` closes no node.
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
        """Return the window's maintenance times within [begin, end), in order; adjacent ones are merged."""
        if self.problem:
            return ()
        if self.recurrence is not None:
            return merged(self.recurrence.occurrences(begin, end))
        inside = self.start < end and self.end > begin
        return (Occurrence(self.start, self.end),) if inside else ()

    def next_span(self, moment: int) -> Occurrence | None:
        """Return the current maintenance time of the window, else the next one; None after the last one."""
        now = self.spans(moment, moment + 1)
        if now or self.problem:
            return now[0] if now else None
        if self.recurrence is None:
            return Occurrence(self.start, self.end) if self.start > moment else None
        start = self.recurrence.next_start(moment)
        return Occurrence(start, start + self.recurrence.duration) if start is not None else None


class MaintenanceSignal(msgspec.Struct, frozen=True):
    """Signal that a node becomes unavailable at `start` (seconds since the epoch, 0: now) for an unknown time.
    `source` is for users.
    """

    source: str
    start: int
