"""Copies of one request that fit on every node over a time line, with their sums and their growth."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.scheduling.reservations.window import RowArray, Window

CountArray = npt.NDArray[np.int32]
"""Numbers of copies: half as wide as amounts, since each request has one for every slot and row."""

_MOST_COPIES = 2**31 - 1
# Number of sets of rows whose sums are cached.
_MOST_ROOMS = 32


class CopyCounts:
    """`copies` int32[T, N]: copies that each row fits in each slot.

    `unseen` are windows that were subtracted or added back since, `outdated` bool[N] the rows to recount.
    `stale` is whether there are any; `queried` is whether they were used since the last change of the time line.
    """

    __slots__ = ("_former", "_growth", "_noted", "_rooms", "copies", "outdated", "queried", "stale", "unseen")

    def __init__(self, copies: CountArray, growth: int = 0) -> None:
        self.copies = copies
        self.unseen: dict[int, Window] = {}
        self.outdated: BoolArray = np.zeros(copies.shape[1], dtype=np.bool_)
        self.stale = False
        self.queried = True
        # Queried rows -> bool[N] of them, and int64[T]: the sum of copies on them.
        self._rooms: dict[bytes, tuple[BoolArray, IntArray]] = {}
        self._growth = growth
        # Rows with counts from before their recount, and these counts.
        self._noted: BoolArray = np.zeros(copies.shape[1], dtype=np.bool_)
        self._former: list[tuple[RowArray, CountArray]] = []

    def carry(self, slots: RowArray, comparable: bool) -> None:
        """Bring the counts to a new time line, whose slots lie in `slots` of the former one.

        The growth between both is not measured unless they are `comparable`."""
        self.copies = self.copies[slots]
        self._rooms = {key: (mask, room[slots]) for key, (mask, room) in self._rooms.items()}
        self.queried = False
        if comparable:
            self._former = [(rows, former[slots]) for rows, former in self._former]
        else:
            self._former.clear()
            self._noted[:] = False

    def outdate(self, rows: RowArray) -> None:
        """Mark rows as outdated."""
        self.outdated[rows] = True
        self.stale = True

    def pop_outdated(self) -> RowArray:
        """Return the outdated rows, which are no longer so."""
        rows: RowArray = np.flatnonzero(self.outdated)
        self.outdated[rows] = False
        self.stale = False
        return rows

    def replace(self, rows: RowArray, begin: int, end: int, fresh: CountArray) -> None:
        """Replace the copies of some rows from slot `begin` to `end`, and update the sums."""
        new = rows[~self._noted[rows]]
        if len(new):
            self._noted[new] = True
            self._former.append((new, self.copies[:, new]))
        change = fresh - self.copies[begin:end, rows]
        for mask, room in self._rooms.values():
            room[begin:end] += change[:, mask[rows]].sum(axis=1, dtype=np.int64)
        self.copies[begin:end, rows] = fresh

    def room(self, rows: BoolArray) -> IntArray:
        """Return int64[T]: the sum of copies on the rows bool[N]."""
        key = rows.tobytes()
        known = self._rooms.get(key)
        if known is None:
            if len(self._rooms) >= _MOST_ROOMS:
                self._rooms.clear()
            known = self._rooms[key] = (rows.copy(), self.copies.compress(rows, axis=1).sum(axis=1, dtype=np.int64))
        return known[1]

    def measure_growth(self) -> int:
        """Return the sum over rows of the largest growth of copies in any slot, accumulated from all recounts."""
        for rows, former in self._former:
            self._noted[rows] = False
            self._growth += int(np.maximum((self.copies[:, rows] - former).max(axis=0), 0).sum(dtype=np.int64))
        self._former.clear()
        return self._growth


def as_counts(copies: IntArray) -> CountArray:
    """Return numbers of copies from 0 on, as an array of counts; `copies` is overwritten."""
    np.maximum(copies, 0, out=copies)
    return np.minimum(copies, _MOST_COPIES, out=copies).astype(np.int32)


def request_key(pod_class: ClassRecord) -> bytes:
    """Return the key of all classes with the same amounts."""
    return pod_class.columns.tobytes() + pod_class.amounts.tobytes()
