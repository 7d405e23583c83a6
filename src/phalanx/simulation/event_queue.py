"""What is going to happen, in order of time."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterator

Effect = Callable[[], None]


class EventOrder(enum.IntEnum):
    """What happens first of that which happens in the same moment; after all of it comes one cycle."""

    END = 0  # pods finish, are killed, have left
    START = 1  # bound pods begin to run
    NODE = 2  # nodes come, go and return
    POLICY = 3  # queues, quotas and policies change
    SUBMIT = 4
    TIMER = 5


class EventQueue:
    """Times are whole seconds. What is due in one moment and of one order keeps the order of its coming."""

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
        """What is due, one after the other; what is added meanwhile for now is due as well."""
        while self._heap and self._heap[0][0] <= now:
            yield heapq.heappop(self._heap)[3]
