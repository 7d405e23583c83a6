"""Work by key: many keys at once, one key never twice at once, news about a busy key never lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

# A worker that fails with something nobody foresaw is tried again, but not in a hurry.
_CRASH_DELAY = 5.0


class KeyedQueue:
    """Calls `work(key)` for every marked key, `limit` at once at most.

    Marks of a key that waits are one; a mark of a key that is being worked on calls `work` once more. `work`
    returns None when it is done with the key for now, or after how many seconds it wants to be called again.
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
        """How many keys wait or are worked on (those that wait for a time to pass not counted)."""
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
        """Stop at once; what is being worked on is cancelled."""
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
