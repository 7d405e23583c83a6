"""The cheapest victims over all nodes, while the shortfalls of reclaimees change with each choice."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from phalanx.scheduling.preemption.shortfall import LossKey, Shortfalls
from phalanx.scheduling.preemption.solution import EvictionCost, cost_of
from phalanx.scheduling.preemption.victims import VictimCandidate

Way = list[VictimCandidate]
"""Victims on one node that make room for one copy of a pod."""

_Entry = tuple[EvictionCost, int, int, int, Way]
"""Cost without shortfall, row, turn of the row, number of the way; ways of one row and turn exclude each other."""

_Place = tuple[EvictionCost, int, int, int, LossKey]
"""Cost of the cheapest entry of a `LossKey` when it was queued, its row, turn and number, and the key."""


class CheapestWays:
    """Priority queue of the ways to make room on each row.

    Ways that take the same amounts from the same accounts keep their order whatever was chosen before. So there is
    one heap per `LossKey`, and a heap of their cheapest entries. Shortfalls only increase: a queued cost is a lower
    bound, and it is compared again when it is the least.
    """

    def __init__(self, shortfalls: Shortfalls | None) -> None:
        self._shortfalls = shortfalls
        self._turns: dict[int, int] = {}
        self._entries: dict[LossKey, list[_Entry]] = {}
        self._queue: list[_Place] = []
        self._places: dict[LossKey, _Place] = {}

    def weigh(self, row: int, ways: Iterable[Way]) -> None:
        """Replace the ways of a row."""
        turn = self._turns[row] = self._turns.get(row, 0) + 1
        for number, way in enumerate(ways):
            key = self._shortfalls.key_of(way) if self._shortfalls is not None else ()
            entries = self._entries.setdefault(key, [])
            entry = (own_cost(way), row, turn, number, way)
            heapq.heappush(entries, entry)
            if entries[0] is entry:
                self._enqueue(key, entry)

    def pop(self) -> tuple[int, Way] | None:
        """Return a row and its way of the least cost, and forget all ways of the row; None if no way is left."""
        while self._queue:
            place = heapq.heappop(self._queue)
            key = place[-1]
            if self._places[key] is not place:
                continue
            entries = self._entries[key]
            while entries and entries[0][2] != self._turns[entries[0][1]]:
                heapq.heappop(entries)
            if not entries:
                continue
            least = entries[0]
            if self._enqueue(key, least) > place:
                continue
            heapq.heappop(entries)
            _, row, _, _, way = least
            self._turns[row] += 1
            return row, way
        return None

    def _enqueue(self, key: LossKey, entry: _Entry) -> _Place:
        """Queue the cheapest entry of a key at its present cost."""
        cost, row, turn, number, way = entry
        if self._shortfalls is not None:
            cost = cost._replace(shortfall=self._shortfalls.of(way, key))
        place = self._places[key] = (cost, row, turn, number, key)
        heapq.heappush(self._queue, place)
        return place


def own_cost(way: Way) -> EvictionCost:
    """Return the cost of the victims without shortfall.

    Only budgets that allow no disruption now count as violated.
    """
    return cost_of(way, sum(victim.exhausted_budgets for victim in way))
