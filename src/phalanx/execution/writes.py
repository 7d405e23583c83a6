"""One pool for everything that we write, the urgent first."""

from __future__ import annotations

import asyncio
import enum
import heapq
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

Job = Callable[[], Awaitable[None]]


class Urgency(enum.IntEnum):
    """Lower goes first: capacity is decided by bindings and deletions, the rest is news."""

    BIND = 0
    DELETE = 1
    STATUS = 2


class WritePool:
    """At most `concurrency` writes at a time, by urgency and then in order of submission.

    A job that raises is logged and forgotten: each writer handles the failures that it knows.
    """

    def __init__(self, concurrency: int = 64) -> None:
        self._concurrency = concurrency
        self._heap: list[tuple[int, int, Job]] = []
        self._submitted = 0
        self._running = 0
        self._workers: set[asyncio.Task[None]] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def __len__(self) -> int:
        """Jobs that wait or run."""
        return len(self._heap) + self._running

    def submit(self, urgency: Urgency, job: Job) -> None:
        self._submitted += 1
        heapq.heappush(self._heap, (urgency, self._submitted, job))
        self._quiet.clear()
        if len(self._workers) < self._concurrency:
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def drained(self) -> None:
        """Returns when nothing waits or runs."""
        await self._quiet.wait()

    async def close(self) -> None:
        """Drops what waits and cancels what runs."""
        self._heap.clear()
        for worker in list(self._workers):
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self) -> None:
        while self._heap:
            _, _, job = heapq.heappop(self._heap)
            self._running += 1
            try:
                await job()
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("a write failed unexpectedly")
            finally:
                self._running -= 1
                if not self._heap and not self._running:
                    self._quiet.set()
