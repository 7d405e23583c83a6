"""Reads that are sent before their reader exists."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost

__all__ = ["ReadsAhead"]


class ReadsAhead:
    """Responses by target, each for the first reader that requests the same target.

    A process can thus load its code while the server prepares a long list. A read that fails has no effect: its
    reader sends the request itself, and handles the failure.
    """

    def __init__(self) -> None:
        self._reads: dict[str, asyncio.Task[tuple[bytes, float]]] = {}

    def __bool__(self) -> bool:
        return bool(self._reads)

    def begin(self, target: str, read: Callable[[], Awaitable[bytes]]) -> None:
        async def timed() -> tuple[bytes, float]:
            begun = time.perf_counter()
            body = await read()
            return body, time.perf_counter() - begun

        self._reads[target] = asyncio.ensure_future(timed())

    async def take(self, target: str) -> tuple[bytes, float] | None:
        """Return the response of a target and its seconds, once; None if it was not read ahead, or in vain."""
        reading = self._reads.pop(target, None)
        if reading is None:
            return None
        try:
            return await reading
        except (ApiError, ConfigError, ConnectionLost):
            return None

    async def close(self) -> None:
        """Cancel the reads without a reader."""
        reads = list(self._reads.values())
        self._reads.clear()
        for reading in reads:
            reading.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
