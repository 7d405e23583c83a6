"""Work queue by key: many keys in parallel, one key never twice at once; a key marked during its work is processed
again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

# An unforeseen error of a worker is retried with a long pause.
_CRASH_DELAY = 5.0


class KeyedQueue:
    """Queue that calls `work(key)` for every marked key, for at most `limit` keys at once.

    Several marks of a waiting key count as one; a mark of a busy key calls `work` once more. `work` returns None
    when the key is done, or the number of seconds until its next call.
    """

    def __init__(self, work: Callable[[str], Awaitable[float | None]], limit: int) -> None:
        self._work = work
        self._limit = limit
        self._waiting: dict[str, None] = {}
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        """Return the number of waiting keys and keys in work (without keys that wait for a delay)."""
        return len(self._waiting) + len(self._busy)

    def mark(self, key: str) -> None:
        if self._closed:
            return
        if key in self._busy:
            self._again.add(key)
            return
        if handle := self._later.pop(key, None):
            handle.cancel()
        self._waiting[key] = None
        if len(self._workers) < self._limit:
            worker = asyncio.get_running_loop().create_task(self._run())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def close(self) -> None:
        """Stop the queue at once and cancel all workers."""
        self._closed = True
        for handle in self._later.values():
            handle.cancel()
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    async def _run(self) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._busy.add(key)
            try:
                delay = await self._work(key)
            except Exception:
                log.exception("work on %s failed", key)
                delay = _CRASH_DELAY
            finally:
                self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                self._waiting[key] = None
            elif delay is not None and not self._closed:
                self._later[key] = asyncio.get_running_loop().call_later(delay, self._due, key)

    def _due(self, key: str) -> None:
        self._later.pop(key, None)
        self.mark(key)
