"""Searches that found nothing, so that nobody asks the same again before something has changed."""

from __future__ import annotations

from typing import Protocol

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.scheduling.queue.demands import Demand

_MOST = 10_000


class EvictionQuestion(msgspec.Struct, frozen=True, eq=True):
    """What the answer depends on besides the cluster. Who asks for the same with the same rights gets the same."""

    demand: Demand
    priority: int
    pod_priority: int
    preempts: bool
    gangs: tuple[GangRecord, ...]
    total: int

    def __hash__(self) -> int:
        return hash((self.demand, self.priority, self.pod_priority, self.preempts, self.total))


class NoSolutionFound(Protocol):
    """A search that found nothing: `retry_at` is when (seconds since the epoch) to ask again, if at some time;
    `pods_arriving` tells whether pods that may help are on their way to their nodes."""

    @property
    def retry_at(self) -> float | None: ...
    @property
    def pods_arriving(self) -> bool: ...


class NoSolutionCache:
    """Kept by the scheduler over cycles."""

    def __init__(self) -> None:
        self._freed_since = -1
        self._found: dict[EvictionQuestion, tuple[NoSolutionFound, int]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def known_no_solution(
        self, question: EvictionQuestion, freed: int, bound: int, now: float
    ) -> NoSolutionFound | None:
        """The answer, if it cannot have changed: `freed` counts the changes that may help, `bound` the pods that
        have arrived on their nodes, `now` may be time."""
        if freed != self._freed_since:
            self._found.clear()
            self._freed_since = freed
        found, when = self._found.get(question, (None, -1))
        if found is None or (found.retry_at is not None and now >= found.retry_at):
            return None
        return found if not found.pods_arriving or when == bound else None

    def add_no_solution(self, question: EvictionQuestion, freed: int, bound: int, found: NoSolutionFound) -> None:
        if freed != self._freed_since or len(self._found) >= _MOST:
            self._found.clear()
            self._freed_since = freed
        self._found[question] = (found, bound)
