"""Work queue of object keys: each key once, however often it changes, and retried after failures."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

INITIAL_PAUSE = 0.05
MAX_PAUSE = 60.0


class WorkQueue(Generic[K]):
    """Queue of keys with due times (seconds of the event loop's clock).

    One key is never processed twice at the same time; a key that changes during its processing is processed again.
    """

    def __init__(self, *, jitter: Callable[[], float] = random.random) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0
        # Busy keys, each with the time at which it is processed again.
        self._busy: dict[K, float | None] = {}
        self._failures: dict[K, int] = {}
        self._wake = asyncio.Event()
        self._jitter = jitter

    def __len__(self) -> int:
        return len(self._due) + len(self._busy)

    def add(self, key: K, delay: float = 0.0) -> None:
        """Schedule a key in `delay` seconds, or earlier if it was scheduled earlier."""
        moment = asyncio.get_running_loop().time() + max(0.0, delay)
        if key in self._busy:
            planned = self._busy[key]
            self._busy[key] = moment if planned is None else min(planned, moment)
            return
        if self._due.get(key, moment + 1) <= moment:
            return
        self._due[key] = moment
        self._count += 1
        heapq.heappush(self._heap, (moment, self._count, key))
        self._wake.set()

    def forget(self, key: K) -> None:
        """Drop the key of a deleted object."""
        self._due.pop(key, None)
        self._failures.pop(key, None)

    async def run(self, look: Callable[[K], Awaitable[float | None]], workers: int) -> None:
        """Process keys until cancelled. `look` processes one key and returns the seconds until its next call, None
        to wait for a change."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(workers):
                tasks.create_task(self._work(look))

    async def _work(self, look: Callable[[K], Awaitable[float | None]]) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            key = await self._next()
            self._busy[key] = None
            again: float | None = None
            try:
                again = await look(key)
            except Exception:
                again = self._pause(key)
            else:
                self._failures.pop(key, None)
            finally:
                planned = self._busy.pop(key)
                if planned is not None:
                    self.add(key, planned - clock())
            if again is not None:
                self.add(key, again)

    def _pause(self, key: K) -> float:
        count = self._failures[key] = self._failures.get(key, 0) + 1
        pause = min(MAX_PAUSE, INITIAL_PAUSE * 2.0 ** min(count, 20))
        return pause * (0.75 + 0.5 * self._jitter())

    async def _next(self) -> K:
        """Wait for the next key that is due and return it."""
        while True:
            now = asyncio.get_running_loop().time()
            while self._heap:
                moment, _, key = self._heap[0]
                if self._due.get(key) == moment and moment > now:
                    break
                heapq.heappop(self._heap)
                if self._due.get(key) == moment:
                    del self._due[key]
                    return key
            self._wake.clear()
            pause = self._heap[0][0] - now if self._heap else MAX_PAUSE
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
