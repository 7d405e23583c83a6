"""Queue of future events in order of time."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterator

Effect = Callable[[], None]


class EventOrder(enum.IntEnum):
    """Order of events of one moment; one cycle follows after all of them."""

    END = 0  # pods finish, are killed, are deleted
    START = 1  # bound pods begin to run
    NODE = 2  # nodes are added, fail and return
    POLICY = 3  # queues, quotas and policies change
    SUBMIT = 4
    TIMER = 5


class EventQueue:
    """Priority queue of events; times are whole seconds. Events of one time and order run in order of addition."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Effect]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: int, order: EventOrder, effect: Effect) -> None:
        self._count += 1
        heapq.heappush(self._heap, (when, order, self._count, effect))

    @property
    def next_time(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> Iterator[Effect]:
        """Yield the due effects one by one, including those that are added for `now` while they run."""
        while self._heap and self._heap[0][0] <= now:
            yield heapq.heappop(self._heap)[3]
