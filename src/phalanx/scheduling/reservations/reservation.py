"""Start reservation of a waiting unit, with its promised start and the history of that promise."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.window import Part, Window


class SlipCause(enum.StrEnum):
    """Cause of a postponement of a promised start."""

    NODE_LOST = "NodeLost"
    NODE_CLOSED = "NodeClosed"
    NODE_SHRUNK = "NodeShrunk"
    OVERRUN = "Overrun"
    STARTED_LATE = "StartedLate"
    DISPLACED = "Displaced"
    LIMIT_CHANGED = "LimitChanged"
    DEMAND_CHANGED = "DemandChanged"
    QUOTA_CHANGED = "QuotaChanged"
    MAINTENANCE = "Maintenance"
    CANNOT_START = "CannotStart"
    NOT_PLACEABLE = "NotPlaceable"
    UNKNOWN = "Unknown"


#: `lacks` of a window that was not searched for an earlier place yet.
NOT_SEARCHED: Final = (-1, 0)


class Slip(msgspec.Struct, frozen=True):
    """Postponement at `when` from one start to another (0: unknown), with its cause; `by` names the pod or object
    responsible."""

    when: int
    former: int
    start: int
    cause: SlipCause
    by: str = ""


class ToldStart(msgspec.Struct, frozen=True, omit_defaults=True):
    """Published basis of a start at the moment `at`.

    The start rests on the run-time limits of `gangs` gangs and single pods; `endless` pods without a known end are
    on other usable nodes. `expected` and `until` are the times by which 50 and 80 of 100 comparable units have
    started; 0 if unknown.
    """

    at: int
    gangs: int = 0
    endless: int = 0
    expected: int = 0
    until: int = 0


class Reservation:
    """Window that is reserved for one waiting unit.

    - `promised`: the first promised start; `made`: the time of that promise; both in seconds since the epoch.
    - `parts`: the unit's request.
    - `priority`: a unit of higher priority can displace the window.
    - `slips`: the last postponements.
    - `told`: the published start. It follows the window when that is postponed, or moves forward by enough to
      justify a write.
    - `lacks`: recount number of the future, and the growth of copies before which no earlier window exists.
    - `words`: the published basis, None until the first query.
    - `spares`: the window starts so soon that no victims are evicted for it.
    - `predicted`: quantiles of its wait at `made` (StartCalibration).
    """

    __slots__ = (
        "attempted_at",
        "duration",
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
        self.retry_at = 0
        self.attempted_at = (-1, -1, -1, -1)
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
        """Number of pods that start together."""
        return sum(part.count for part in self.parts)
