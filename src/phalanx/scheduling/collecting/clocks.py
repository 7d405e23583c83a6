"""Waiting times of gangs that lack nothing but room on nodes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from phalanx.scheduling.queue.unschedulable import UnitKey

#: Longest wait before a further try, in seconds.
_LONGEST_WAIT = 86_400


class WaitingClocks:
    """When each waiting gang may collect: `since` plus its wait, twice as long after each collection that failed.

    A gang without a clock costs nothing.
    """

    def __init__(self) -> None:
        self.since: dict[UnitKey, int] = {}
        self.failures: dict[UnitKey, int] = {}
        # Time from which each gang may collect, and the time at which it is considered next.
        self._first: dict[UnitKey, int] = {}
        self._due: dict[UnitKey, int] = {}
        self._heap: list[tuple[int, int, UnitKey]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self.since)

    def __contains__(self, key: object) -> bool:
        return key in self.since

    def start(self, key: UnitKey, now: int, wait: int) -> None:
        """Start the clock of a gang, or adapt a running one to its `wait` in seconds."""
        since = self.since.setdefault(key, now)
        doubled = wait << min(self.failures.get(key, 0), 20)
        when = since + max(wait, min(doubled, _LONGEST_WAIT))
        if self._first.get(key) != when:
            self._first[key] = when
            self.retry_at(key, when)

    def retry_at(self, key: UnitKey, when: int) -> None:
        """Consider a gang again at `when`."""
        self._due[key] = when
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, key))

    def stop(self, key: UnitKey) -> None:
        """Stop the clock: something else than room is in the way."""
        self.since.pop(key, None)
        self._first.pop(key, None)
        self._due.pop(key, None)

    def forget(self, key: UnitKey) -> None:
        """Forget a gang that started or is gone."""
        self.stop(key)
        self.failures.pop(key, None)

    def failed(self, key: UnitKey, now: int, wait: int) -> None:
        """Restart the clock after a collection that failed: the next try waits twice as long."""
        self.failures[key] = self.failures.get(key, 0) + 1
        self.stop(key)
        self.start(key, now, wait)

    @property
    def next_due(self) -> int | None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: int) -> Iterator[UnitKey]:
        """Yield the gangs whose time has come; `retry_at` considers them again."""
        while (when := self.next_due) is not None and when <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            yield key

    def load(self, failures: Mapping[UnitKey, int]) -> None:
        """Load the failed collections of an earlier process."""
        self.failures |= failures
