"""Cache of searches for victims without a result, so that they are repeated only after a relevant change."""

from __future__ import annotations

from typing import Protocol

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.scheduling.queue.demands import Demand

_MOST = 10_000


class EvictionQuestion(msgspec.Struct, frozen=True, eq=True):
    """Inputs of a search for victims besides the cluster. Gangs and pods with equal inputs get the same result."""

    demand: Demand
    priority: int
    pod_priority: int
    preempts: bool
    gangs: tuple[GangRecord, ...]
    total: int

    def __hash__(self) -> int:
        return hash((self.demand, self.priority, self.pod_priority, self.preempts, self.total))


class NoSolutionFound(Protocol):
    """A search without a result. `retry_at` is the time of a useful retry in seconds since the epoch, if there is
    one; `pods_arriving` tells whether pods that could become victims are being bound.
    """

    @property
    def retry_at(self) -> float | None: ...
    @property
    def pods_arriving(self) -> bool: ...


class NoSolutionCache:
    """Searches for victims without a result; the scheduler preserves them across cycles."""

    def __init__(self) -> None:
        self._freed_since = -1
        self._results: dict[EvictionQuestion, tuple[NoSolutionFound, int]] = {}

    def __len__(self) -> int:
        return len(self._results)

    def known_no_solution(
        self, question: EvictionQuestion, freed: int, bound: int, now: float
    ) -> NoSolutionFound | None:
        """Return the known result if it is still valid.

        `freed` counts relevant changes, `bound` the pods that arrived on their nodes; `retry_at` can have passed at
        `now`.
        """
        if freed != self._freed_since:
            self._results.clear()
            self._freed_since = freed
        result, bound_then = self._results.get(question, (None, -1))
        if result is None or (result.retry_at is not None and now >= result.retry_at):
            return None
        return result if not result.pods_arriving or bound_then == bound else None

    def add_no_solution(self, question: EvictionQuestion, freed: int, bound: int, result: NoSolutionFound) -> None:
        if freed != self._freed_since or len(self._results) >= _MOST:
            self._results.clear()
            self._freed_since = freed
        self._results[question] = (result, bound)
