"""A promise: who starts when, where, and what became of the promise so far."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.window import Part, Window


class SlipCause(enum.StrEnum):
    """Why a promised start has moved to a later time."""

    NODE_LOST = "NodeLost"
    OVERRUN = "Overrun"
    STARTED_LATE = "StartedLate"
    DISPLACED = "Displaced"
    LIMIT_CHANGED = "LimitChanged"
    DEMAND_CHANGED = "DemandChanged"
    QUOTA_CHANGED = "QuotaChanged"
    MAINTENANCE = "Maintenance"
    NOT_PLACEABLE = "NotPlaceable"
    UNKNOWN = "Unknown"


#: Of a window that has not been tried to move forward.
NOT_SEARCHED: Final = (-1, 0)


class Slip(msgspec.Struct, frozen=True):
    """At `when` the start moved from one moment to another (0: to no known one), for a cause; `by` says whose."""

    when: int
    former: int
    start: int
    cause: SlipCause
    by: str = ""


class ToldStart(msgspec.Struct, frozen=True, omit_defaults=True):
    """What people were told beside the start itself, `at` a moment: on the limits of how many `gangs` (and pods on
    their own) it rests, and how many pods without an end (`endless`) are on other nodes that it could use.

    `expected` is when half of those that were told the like had started, `until` when 80 of 100 had; 0 where nobody
    can say.
    """

    at: int
    gangs: int = 0
    endless: int = 0
    expected: int = 0
    until: int = 0


class Reservation:
    """The window that is kept for one waiting unit.

    `promised` is the start that it was told first, `made` when that was; both in seconds since the epoch. `parts`
    is what it asks for. Who has a lower `priority` may lose its window to who has a higher one. `slips` are
    the moves to later times, the last ones. `told` is what people see: it follows the window when that moves back,
    and when it moves forward by enough to be worth a write. `lacks` tells since which count of the future it is
    known that nothing earlier will do before its classes have grown to so many copies. `words` are what was told
    with `told`, None until somebody asks. It `spares` others while they could be evicted for it and are not,
    since it starts soon enough. `predicted` are the quantiles of its wait when it was made (StartCalibration).
    """

    __slots__ = (
        "attempted_at",
        "duration",
        "failures",
        "key",
        "lacks",
        "made",
        "name",
        "parts",
        "predicted",
        "priority",
        "promised",
        "queue",
        "retry_at",
        "slips",
        "spares",
        "told",
        "window",
        "words",
    )

    def __init__(
        self,
        key: UnitKey,
        name: str,
        queue: str,
        priority: int,
        parts: tuple[Part, ...],
        duration: int,
        window: Window,
        made: int,
    ) -> None:
        self.key = key
        self.name = name
        self.queue = queue
        self.priority = priority
        self.parts = parts
        self.duration = duration
        self.window = window
        self.promised = window.start
        self.told = window.start
        self.made = made
        self.slips: tuple[Slip, ...] = ()
        self.failures = 0
        self.retry_at = 0.0
        self.attempted_at = (-1, -1)
        self.lacks = NOT_SEARCHED
        self.words: ToldStart | None = None
        self.spares = False
        self.predicted: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"Reservation({self.name}, start={self.window.start}, promised={self.promised})"

    @property
    def start(self) -> int:
        return self.window.start

    @property
    def pods(self) -> int:
        """How many start together."""
        return sum(part.count for part in self.parts)
