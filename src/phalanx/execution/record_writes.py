"""Writes of a record: state of the process that a restart needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from phalanx.execution.writes import Urgency, WritePool


class RecordWrites:
    """Submits `write` for one object: one write at a time, each of the state at its begin.

    Statuses that are submitted after `submit` are written after a write that has begun after it.
    """

    def __init__(self, pool: WritePool, write: Callable[[], Awaitable[None]]) -> None:
        self._pool = pool
        self._write = write
        self._queued = False
        self._one = asyncio.Lock()

    def submit(self) -> None:
        """Submit a write, unless one is submitted that has not begun."""
        if not self._queued:
            self._queued = True
            self._pool.submit(Urgency.RECORD, self._run)

    async def _run(self) -> None:
        async with self._one:
            self._queued = False
            await self._write()
