"""Start reservation of a waiting unit, with its promised start and the history of that promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from phalanx.model.promise_records import Slip, ToldStart
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.window import Part, Window

#: `lacks` of a window that was not searched for an earlier place yet.
NOT_SEARCHED: Final = (-1, 0)


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

    def uses_whole_window(self, rows: Sequence[int], now: int) -> bool:
        """Return whether pods on `rows` have all idle amounts that the window reserves now."""
        window = self.window
        if window.start > now or len(window.kept) != 1 or len(window.shares) != 1:
            return False
        (share,) = window.shares
        return sorted(rows) == sorted(np.repeat(share.rows, share.counts).tolist())
