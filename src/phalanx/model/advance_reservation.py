"""Advance reservations: capacity that a user reserves for certain pods during a time window."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from phalanx.model.pod import PodClass
from phalanx.model.recurrence import Occurrence, Recurrence
from phalanx.model.selectors import Requirement

RESERVATION_ANNOTATION: Final = "phalanx.dev/reservation"
"""Annotation of a pod with the name of the Reservation that it uses."""

NO_END: Final = 2**62
"""End of a window without a known end."""


class AtEnd(enum.StrEnum):
    """Action for the pods that use an advance reservation, when the reservation ends."""

    EVICT = "evict"
    KEEP = "keep"
    HOLD = "hold"  # running pods continue; waiting pods continue to wait


class Replace(enum.StrEnum):
    """Choice of the nodes that an advance reservation replaces by other nodes."""

    NONE = "none"
    LOST = "lost"


class ReservedNodes(msgspec.Struct, frozen=True):
    """Whole nodes that an advance reservation reserves: all nodes in `names`, or `count` (0: all) of the selected
    nodes."""

    names: tuple[str, ...] = ()
    selector: tuple[Requirement, ...] | None = None
    count: int = 0


class AdvanceReservation(msgspec.Struct, frozen=True):
    """Advance reservation: reserved capacity for `count` pods of `template`, for the requests of the gang
    (namespace, name), or whole `nodes`.

    The first occurrence lasts from `start` (the earliest start, if `flexible_start`) for `duration` seconds (0:
    until `end`, NO_END for no end); `recurrence` adds further ones. `queue` is charged, "" for no queue. The
    priority is that of the template. With `once` the reservation ends after its first use. It also ends
    `unused_after` seconds after its start or its last use (0: never). A `closed` reservation accepts no new pods.
    `asks` identifies the request: a grant belongs to one request. A reservation with a `problem` is never
    granted.
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
        """Return the reservation's time window at `moment`, else its next one; None after the last one."""
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
