"""Unschedulable gangs and pods with one demand, in order."""

from __future__ import annotations

import heapq

from phalanx.model.gang import GangKey
from phalanx.scheduling.refusals.refusal import Refusal

GangGroupKey = tuple[GangKey, ...]
UnitKey = GangGroupKey | str
Rank = tuple[object, ...]
"""Position in the order of the cycle; smaller first."""


class FitError:
    """Why a demand is refused: `facts` for every unit with this wait reason, as of the cluster's `version`.

    `facts` is None if the reason itself explains the refusal.
    """

    __slots__ = ("facts", "version")

    def __init__(self, facts: Refusal | None, version: int) -> None:
        self.facts = facts
        self.version = version


class UnschedulableUnits:
    """Unschedulable gangs and pods with equal demand, which fit or fail together, in the order of the queue.

    `fit_error` is the last refusal; with `may_fit` it can be outdated. `untold` are the units whose verdicts do not
    contain the newest facts yet.
    """

    def __init__(self, fit_error: FitError) -> None:
        self.units: dict[UnitKey, Rank] = {}
        self.untold: dict[UnitKey, None] = {}
        self.fit_error = fit_error
        self.may_fit = False
        self._heap: list[tuple[Rank, UnitKey]] = []

    def add(self, key: UnitKey, rank: Rank) -> None:
        self.units[key] = rank
        if len(self._heap) > 2 * len(self.units) + 64:
            self._heap = [(rank, key) for key, rank in self.units.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (rank, key))

    def discard(self, key: UnitKey) -> None:
        self.units.pop(key, None)
        self.untold.pop(key, None)

    def first(self) -> UnitKey | None:
        """Return the key of the first unit in order; None if there is none."""
        while self._heap:
            rank, key = self._heap[0]
            if self.units.get(key) == rank:
                return key
            heapq.heappop(self._heap)
        return None

    def reorder(self, ranks: dict[UnitKey, Rank]) -> None:
        self.units = ranks
        self._heap = [(rank, key) for key, rank in self.units.items()]
        heapq.heapify(self._heap)
