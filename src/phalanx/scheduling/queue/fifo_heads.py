"""Heads of queues that keep their order: the waiting gangs and pods that no younger one of their queue may
overtake."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from phalanx.model.account import AccountKey
from phalanx.scheduling.queue.unschedulable import Rank, UnitKey
from phalanx.scheduling.refusals.refusal import BlockedByFifo

Head = tuple[Rank, BlockedByFifo]
IsWaiting = Callable[[UnitKey], bool]


class FifoHeads:
    """Waiting gangs and pods that hold up their queue; each is a head of one queue at most."""

    def __init__(self) -> None:
        self._heads: dict[AccountKey, dict[UnitKey, Head]] = {}
        self._queues: dict[UnitKey, AccountKey] = {}

    def __iter__(self) -> Iterator[UnitKey]:
        return iter(self._queues)

    def put(self, key: UnitKey, queue: AccountKey, head: Head) -> AccountKey | None:
        """Record a waiting gang or pod as a head of a queue. Return another queue of which it was a head before."""
        former = self.remove(key) if self._queues.get(key, queue) != queue else None
        self._queues[key] = queue
        self._heads.setdefault(queue, {})[key] = head
        return former

    def remove(self, key: UnitKey) -> AccountKey | None:
        """Remove a waiting gang or pod from the heads. Return the queue of which it was a head."""
        queue = self._queues.pop(key, None)
        if queue is not None:
            del self._heads[queue][key]
            if not self._heads[queue]:
                del self._heads[queue]
        return queue

    def first(self, queue: AccountKey, is_waiting: IsWaiting, but: UnitKey) -> Head | None:
        """Return the first head of a queue that waits, except for the one of the key `but`."""
        heads = (head for key, head in self._heads.get(queue, {}).items() if key != but and is_waiting(key))
        return min(heads, key=lambda head: head[0], default=None)

    def remove_gone(self, is_waiting: IsWaiting) -> list[AccountKey]:
        """Remove the heads that do not wait any more. Return their queues."""
        gone = [key for key in self._queues if not is_waiting(key)] if self._queues else ()
        return [queue for key in gone if (queue := self.remove(key)) is not None]
