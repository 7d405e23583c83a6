"""Advance reservations: room that somebody has asked to be kept for certain pods from one moment to another."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from phalanx.model.pod import PodClass
from phalanx.model.recurrence import Occurrence, Recurrence
from phalanx.model.selectors import Requirement

RESERVATION_ANNOTATION: Final = "phalanx.dev/reservation"
"""Annotation of a pod: the Reservation that it uses."""

NO_END: Final = 2**62
"""An end that nobody knows."""


class AtEnd(enum.StrEnum):
    """What becomes of the pods that use a reservation when it ends."""

    EVICT = "evict"
    KEEP = "keep"
    HOLD = "hold"  # they go on; who waits for it goes on waiting


class Replace(enum.StrEnum):
    """Which nodes of a reservation are replaced by others."""

    NONE = "none"
    LOST = "lost"


class ReservedNodes(msgspec.Struct, frozen=True):
    """Whole nodes: all that are named, or `count` (0: all) of those that are selected."""

    names: tuple[str, ...] = ()
    selector: tuple[Requirement, ...] | None = None
    count: int = 0


class AdvanceReservation(msgspec.Struct, frozen=True):
    """What is to be kept: `count` pods of `template`, what the gang (namespace, name) asks for, or whole `nodes`.

    The first occurrence is from `start` (the earliest moment, where it is `flexible_start`) for `duration` seconds
    (0: until `end`, NO_END for ever); others follow from `recurrence`. `queue` is charged, "" for nobody. The
    priority is that of the template. With `once` it is over as soon as somebody has used it; `unused_after` seconds
    after its start, and so long after it was used last, it is given up (0: never). `closed` keeps new users out.
    `asks` tells its question from another: what is granted
    is the answer to one. One with a `problem` is never granted.
    """

    name: str
    uid: str = ""
    kind: str = "Reservation"
    template: PodClass | None = None
    count: int = 1
    gang: tuple[str, str] | None = None
    nodes: ReservedNodes | None = None
    start: int = 0
    end: int = NO_END
    duration: int = 0
    flexible_start: bool = False
    recurrence: Recurrence | None = None
    queue: str = ""
    flex: bool = False
    ignore_running: bool = False
    overlap: bool = False
    once: bool = False
    closed: bool = False
    replace: Replace = Replace.LOST
    on_end: AtEnd = AtEnd.EVICT
    unused_after: int = 0
    asks: str = ""
    problem: str = ""

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"

    def occurrence(self, moment: int) -> Occurrence | None:
        """The one that is under way at a moment, else the next; None when all are over."""
        if self.problem:
            return None
        if self.recurrence is None:
            end = self.start + self.duration if self.duration and not self.flexible_start else self.end
            return Occurrence(self.start, end) if end > moment else None
        now = self.recurrence.occurrences(moment, moment + 1)
        if now:
            return now[0]
        start = self.recurrence.next_start(moment)
        return Occurrence(start, start + self.recurrence.duration) if start is not None else None
