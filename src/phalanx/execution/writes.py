"""Pool of all writes to the API server, by urgency."""

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

# Returns the seconds after which it must be called again; None means done.
Job = Callable[[], Awaitable[float | None]]


class Urgency(enum.IntEnum):
    """Urgency of a write, most urgent first: bindings and deletions decide capacity. A nomination precedes the
    deletions that free its node.

    A record is state of this process that a restart needs. A status or an event is written only after the records
    that were submitted before it: another process must find the state that the published text depends on.
    """

    RECORD = 0
    BIND = 1
    NOMINATE = 2
    DELETE = 3
    STATUS = 4
    EVENT = 5


# Minimum concurrency under load; pause in seconds after an answer 429 without Retry-After.
_FEW = 4
_CALM = 1.0
# Seconds for which an unfinished record delays statuses and events at most.
_PATIENCE = 5.0


def always() -> bool:
    return True


class WritePool:
    """Pool that runs at most `concurrency` API writes at a time, by urgency and then in order of submission.

    An overloaded server (`slow_down`) halves the concurrency down to a minimum, and each accepted write raises it a
    little, as in TCP (RFC 5681): additive increase, multiplicative decrease. Answers to writes from before the last
    decrease are ignored.

    A job that pauses for a retry frees its place, so failing writes do not delay others. `may_write` is called
    before each job; when it returns False (the lease is lost) jobs are dropped. A job that raises is logged and
    dropped: writers handle expected errors themselves.
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
        # Current concurrency; as many accepted writes raise it by one.
        self._window = float(concurrency)
        self._slowed = float("-inf")
        self._may_write = may_write
        self._heap: list[tuple[int, int, Job]] = []
        self._submitted = 0
        # Numbers of the submitted records that statuses wait for.
        self._records: set[int] = set()
        self._paused: set[asyncio.TimerHandle] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._running = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._last_round = False
        self._closed = False
        self.dropped = 0

    def __len__(self) -> int:
        """Return the number of queued, running and paused writes."""
        return len(self._heap) + self._running + len(self._paused)

    def waiting(self) -> dict[Urgency, int]:
        """Return the number of queued writes by urgency."""
        counts = dict.fromkeys(Urgency, 0)
        for urgency, _, _ in self._heap:
            counts[Urgency(urgency)] += 1
        return counts

    @property
    def window(self) -> int:
        """Current maximum of concurrent writes."""
        return int(self._window)

    def slow_down(self, retry_after: float | None = None) -> None:
        """Lower the number of concurrent writes after an answer 429 with this Retry-After in seconds."""
        now = self._clock()
        if now - self._slowed >= (retry_after or _CALM):
            self._slowed = now
            self._window = max(float(min(_FEW, self._concurrency)), self._window / 2)

    def submit(self, urgency: Urgency, job: Job) -> None:
        if self._closed:
            self.dropped += 1
            return
        self._submitted += 1
        if urgency is Urgency.RECORD:
            self._records.add(self._submitted)
            asyncio.get_running_loop().call_later(_PATIENCE, self._record_done, self._submitted)
        self._push((urgency, self._submitted, job))

    async def drained(self) -> None:
        """Wait until no write is queued, running or paused."""
        await self._quiet.wait()

    async def finish(self) -> None:
        """Run all queued writes once and wait for them. Drop writes that pause for a retry."""
        self._last_round = True
        for handle in self._paused:
            handle.cancel()
        self.dropped += len(self._paused)
        self._paused.clear()
        self._settle()
        await self._quiet.wait()

    async def close(self) -> None:
        """Drop queued and future writes, and cancel running ones."""
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

    @property
    def _runnable(self) -> bool:
        """Whether the most urgent job waits for no record."""
        if not self._heap:
            return False
        urgency, number, _ = self._heap[0]
        return not self._records or urgency < Urgency.STATUS or number < min(self._records)

    def _record_done(self, number: int) -> None:
        """Let the jobs run that waited for a record, also after a failure."""
        if number in self._records:
            self._records.discard(number)
            if self._runnable and not self._closed:
                for _ in self._heap:
                    self._employ()

    def _employ(self) -> None:
        if len(self._workers) + 1 <= self._window:
            self._workers.add(asyncio.create_task(self._work()))

    async def _work(self) -> None:
        try:
            while self._runnable and len(self._workers) <= self._window:
                entry = heapq.heappop(self._heap)
                if not self._may_write():
                    self.dropped += 1
                    self._record_done(entry[1])
                    continue
                self._running += 1
                try:
                    pause = await entry[2]()
                except Exception as error:
                    self._failures.record_failure("write", "a write", error)
                    pause = None
                finally:
                    self._running -= 1
                    if self._records:
                        self._record_done(entry[1])
                if pause is not None and self._last_round:
                    self.dropped += 1
                elif pause is not None:
                    self._pause(entry, pause)
                elif self._window < self._concurrency:
                    self._widen()
        finally:
            # Not in a callback of the task: a job that is submitted before it would find no free worker.
            worker = asyncio.current_task()
            assert worker is not None
            self._workers.discard(worker)
            self._settle()

    def _widen(self) -> None:
        self._window = min(float(self._concurrency), self._window + 1 / self._window)
        if self._runnable:
            self._employ()

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
    """API client whose writes run in a pool, after more urgent ones. Without `read` it returns no created
    objects."""

    def __init__(self, client: KubeClient, pool: WritePool, urgency: Urgency, *, read: bool = True) -> None:
        self._client = client
        self._pool = pool
        self._urgency = urgency
        self._read = read

    async def create(self, path: str, obj: Any) -> Any:
        return await self._in_turn(lambda: self._client.create(path, obj, read=self._read))

    async def patch(self, path: str, patch: Any, patch_type: PatchType, *, field_manager: str | None = None) -> Any:
        return await self._in_turn(lambda: self._client.patch(path, patch, patch_type, field_manager=field_manager))

    async def replace(self, path: str, obj: Any) -> Any:
        return await self._in_turn(lambda: self._client.replace(path, obj))

    async def delete(self, path: str, *, uid: str | None = None, propagation: str | None = None) -> Any:
        return await self._in_turn(lambda: self._client.delete(path, uid=uid, propagation=propagation))

    async def get(self, path: str) -> Any:
        """Send a GET at once, outside of the pool."""
        return await self._client.get(path)

    async def _in_turn(self, write: Callable[[], Awaitable[Any]]) -> Any:
        """Run a write in the pool and return its result or raise its error. A dropped write (at exit) never
        returns."""
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
