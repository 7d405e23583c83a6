"""One pool for everything that we write, the urgent first."""

from __future__ import annotations

import asyncio
import enum
import heapq
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.failures import Failures

log = logging.getLogger(__name__)

# A job that cannot go on now returns the seconds after which it wants to be called again; None means done.
Job = Callable[[], Awaitable[float | None]]


class Urgency(enum.IntEnum):
    """Lower goes first: capacity is decided by bindings and deletions, the rest is news. What a deletion frees is
    promised before it is freed.
    """

    BIND = 0
    NOMINATE = 1
    DELETE = 2
    STATUS = 3
    EVENT = 4


# Writes that are sent at a time however busy the server is; seconds that an answer 429 without a time stands for.
_FEW = 4
_CALM = 1.0


def always() -> bool:
    return True


class WritePool:
    """At most `concurrency` writes at a time, by urgency and then in order of submission.

    When the server answers that it has too much to do (`slow_down`), half as many are sent at a time, but not less
    than a few; with each write that it takes again a little more, as TCP does (RFC 5681): additive increase,
    multiplicative decrease. Answers to what was sent before the last decrease say nothing new.

    A job that waits for a better moment gives its place back meanwhile, so writes that fail again and again do
    not hold up those that would succeed. `may_write` is asked before each call of a job; once it says no (the
    lease is lost) jobs are dropped. A job that raises is logged and forgotten: each writer handles the failures
    that it knows.
    """

    def __init__(
        self,
        concurrency: int = 64,
        may_write: Callable[[], bool] = always,
        failures: Failures | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._failures = failures or Failures()
        self._concurrency = concurrency
        self._clock = clock
        # How many are sent at a time now; it grows by one in as many writes.
        self._window = float(concurrency)
        self._slowed = float("-inf")
        self._may_write = may_write
        self._heap: list[tuple[int, int, Job]] = []
        self._submitted = 0
        self._paused: set[asyncio.TimerHandle] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._running = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._last_round = False
        self._closed = False
        self.dropped = 0

    def __len__(self) -> int:
        """Jobs that wait, run or pause."""
        return len(self._heap) + self._running + len(self._paused)

    def waiting(self) -> dict[Urgency, int]:
        """Jobs that have no turn yet, by urgency."""
        counts = dict.fromkeys(Urgency, 0)
        for urgency, _, _ in self._heap:
            counts[Urgency(urgency)] += 1
        return counts

    @property
    def window(self) -> int:
        """How many writes are sent at a time now."""
        return int(self._window)

    def slow_down(self, retry_after: float | None = None) -> None:
        """The server has answered 429, and that it wants to be left alone for so many seconds."""
        now = self._clock()
        if now - self._slowed >= (retry_after or _CALM):
            self._slowed = now
            self._window = max(float(min(_FEW, self._concurrency)), self._window / 2)

    def submit(self, urgency: Urgency, job: Job) -> None:
        if self._closed:
            self.dropped += 1
            return
        self._submitted += 1
        self._push((urgency, self._submitted, job))

    async def drained(self) -> None:
        """Returns when nothing waits, runs or pauses."""
        await self._quiet.wait()

    async def finish(self) -> None:
        """The last round: returns when what waits has had its turn. Whoever would pause is dropped."""
        self._last_round = True
        for handle in self._paused:
            handle.cancel()
        self.dropped += len(self._paused)
        self._paused.clear()
        self._settle()
        await self._quiet.wait()

    async def close(self) -> None:
        """Drops what waits and what comes, and cancels what runs."""
        self._closed = True
        self._heap.clear()
        for handle in self._paused:
            handle.cancel()
        self._paused.clear()
        for worker in list(self._workers):
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._settle()

    def _push(self, entry: tuple[int, int, Job]) -> None:
        heapq.heappush(self._heap, entry)
        self._quiet.clear()
        self._employ()

    def _employ(self) -> None:
        if len(self._workers) < self.window:
            self._workers.add(asyncio.create_task(self._work()))

    async def _work(self) -> None:
        try:
            while self._heap and len(self._workers) <= self.window:
                entry = heapq.heappop(self._heap)
                self._running += 1
                try:
                    pause = await self._call(entry[2])
                finally:
                    self._running -= 1
                if pause is not None and self._last_round:
                    self.dropped += 1
                elif pause is not None:
                    self._pause(entry, pause)
                elif self._window < self._concurrency:
                    self._widen()
        finally:
            # At once and not in a callback of the task: who submits in between must find a place free.
            worker = asyncio.current_task()
            assert worker is not None
            self._workers.discard(worker)
            self._settle()

    def _widen(self) -> None:
        self._window = min(float(self._concurrency), self._window + 1 / self._window)
        if self._heap:
            self._employ()

    async def _call(self, job: Job) -> float | None:
        if not self._may_write():
            self.dropped += 1
            return None
        try:
            return await job()
        except Exception as error:
            self._failures.record_failure("write", "a write", error)
            return None

    def _pause(self, entry: tuple[int, int, Job], seconds: float) -> None:
        def resume() -> None:
            self._paused.discard(handle)
            self._push(entry)

        handle = asyncio.get_running_loop().call_later(seconds, resume)
        self._paused.add(handle)

    def _settle(self) -> None:
        if not len(self):
            self._quiet.set()


class PooledClient:
    """A client whose writes wait for their turn in a pool, behind everything that is more urgent."""

    def __init__(self, client: KubeClient, pool: WritePool, urgency: Urgency) -> None:
        self._client = client
        self._pool = pool
        self._urgency = urgency

    async def create(self, path: str, obj: Any) -> Any:
        return await self._in_turn(lambda: self._client.create(path, obj))

    async def patch(self, path: str, patch: Any, patch_type: PatchType) -> Any:
        return await self._in_turn(lambda: self._client.patch(path, patch, patch_type))

    async def replace(self, path: str, obj: Any) -> Any:
        return await self._in_turn(lambda: self._client.replace(path, obj))

    async def delete(self, path: str, *, uid: str | None = None, propagation: str | None = None) -> Any:
        return await self._in_turn(lambda: self._client.delete(path, uid=uid, propagation=propagation))

    async def get(self, path: str) -> Any:
        """Reads wait for nobody."""
        return await self._client.get(path)

    async def _in_turn(self, write: Callable[[], Awaitable[Any]]) -> Any:
        """What the write returns or raises. A write that the pool drops (the process ends) never returns."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def job() -> None:
            try:
                result = await write()
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        self._pool.submit(self._urgency, job)
        return await answer
