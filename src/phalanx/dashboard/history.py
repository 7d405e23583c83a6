"""Shares of queues over time, in memory: fine resolution for an hour, coarse for two weeks."""

from __future__ import annotations

import array
import math
from collections.abc import Mapping

from phalanx.dashboard.rows.entries import Series

#: Pairs (seconds per point, points): an hour, a day, two weeks.
RESOLUTIONS = ((10, 360), (60, 1440), (600, 2016))
# Bound of memory if queues are created and deleted all the time.
_MOST_QUEUES = 2000
_NAN = math.nan


class _Ring:
    """Points of time of one resolution, of which the oldest are overwritten. A queue that did not exist has NaN."""

    def __init__(self, seconds: int, points: int) -> None:
        self.seconds, self.points = seconds, points
        self.times: array.array[int] = array.array("q")
        self.used: dict[str, array.array[float]] = {}
        self.right: dict[str, array.array[float]] = {}

    def add(self, now: int, shares: Mapping[str, tuple[float, float]]) -> None:
        moment = now - now % self.seconds
        if self.times and self.times[-1] >= moment:
            return
        length = len(self.times)
        self.times.append(moment)
        for queue in shares:
            if queue not in self.used and len(self.used) < _MOST_QUEUES:
                self.used[queue] = array.array("f", [_NAN]) * length
                self.right[queue] = array.array("f", [_NAN]) * length
        for queue in list(self.used):
            used, right = shares.get(queue, (_NAN, _NAN))
            self.used[queue].append(used)
            self.right[queue].append(right)
        if len(self.times) > self.points:
            del self.times[0]
            for queue in list(self.used):
                del self.used[queue][0]
                del self.right[queue][0]
                if all(map(math.isnan, self.used[queue])):
                    del self.used[queue], self.right[queue]


class ShareHistory:
    """Shares of queues over time in percent, at every resolution."""

    def __init__(self) -> None:
        self._rings = [_Ring(seconds, points) for seconds, points in RESOLUTIONS]

    def add(self, now: float, shares: Mapping[str, tuple[float, float]]) -> None:
        """Add a point of time. `shares` maps each queue to (used share, deserved share)."""
        for ring in self._rings:
            ring.add(int(now), shares)

    def series(self, queues: set[str] | None) -> list[Series]:
        """Return the shares over time of `queues`, or of all queues."""
        return [
            Series(
                resolution=ring.seconds,
                times=list(ring.times),
                used=_chosen(ring.used, queues),
                right=_chosen(ring.right, queues),
            )
            for ring in self._rings
        ]


def _chosen(rows: Mapping[str, array.array[float]], queues: set[str] | None) -> dict[str, list[float | None]]:
    return {
        queue: [None if math.isnan(value) else round(value, 2) for value in values]
        for queue, values in rows.items()
        if queues is None or queue in queues
    }
