"""A process around services: it ends by a signal, or when the first of its services ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol


class RunningService(Protocol):
    """A service whose `run` returns after `stop`; `ready` is set while it serves."""

    @property
    def ready(self) -> asyncio.Event: ...

    def stop(self) -> None: ...

    async def run(self) -> None: ...


async def run_until_signal(*services: RunningService, announce: Callable[[], Awaitable[None]]) -> None:
    """Run services until SIGTERM, Ctrl-C, or the end of one, which stops the others; raise what one raises.

    `announce` waits until they are ready and says so; it is cancelled at the end.
    """

    def stop() -> None:
        for service in services:
            service.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    announcing = asyncio.ensure_future(announce())
    try:
        await asyncio.gather(*(_then(service.run(), stop) for service in services))
    finally:
        announcing.cancel()


async def _then(run: Coroutine[Any, Any, None], stop: Callable[[], None]) -> None:
    """Stop all services when one ends, for whatever reason."""
    try:
        await run
    finally:
        stop()
