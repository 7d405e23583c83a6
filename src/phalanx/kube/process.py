"""Frame of a process: services that run until a signal, and services with one leading replica."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from phalanx.kube.api_server import until_reachable
from phalanx.kube.client import KubeClient
from phalanx.kube.failures import Failures
from phalanx.kube.leadership import Leadership, LeaseOptions, unless_stopped


class RunningService(Protocol):
    """A service whose `run` returns after `stop`; `ready` is set while it serves."""

    @property
    def ready(self) -> asyncio.Event: ...

    def stop(self) -> None: ...

    async def run(self) -> None: ...


async def run_until_signal(*services: RunningService, announce: Callable[[], Awaitable[None]]) -> None:
    """Run services until SIGTERM, Ctrl-C, or the end of one, which stops all; raise the first failure.

    `announce` waits until they are ready and logs it; it is cancelled at the end.
    """

    def stop() -> None:
        for service in services:
            service.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    announcing = asyncio.ensure_future(announce())
    try:
        await asyncio.gather(*(_run_then_stop(service.run(), stop) for service in services))
    finally:
        announcing.cancel()


async def _run_then_stop(run: Coroutine[Any, Any, None], stop: Callable[[], None]) -> None:
    """Run one service, and stop all services when it ends or fails."""
    try:
        await run
    finally:
        stop()


class LeadingService:
    """A service with one working replica at a time; without a lease it leads from the start.

    `run` ends when `stop` is called or the lease is lost: see `leadership.lost_because`. `serve` sets `ready`.
    """

    def __init__(self, client: KubeClient, lease: LeaseOptions | None) -> None:
        self.ready = asyncio.Event()
        self.leadership = Leadership(client, lease)
        self._failures = Failures()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Request the end of `run`, which still awaits `drain`."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until `serve` ends, passing its exception on, or until stopped; the lease is released last.

        No request is sent before the API server answers; an unreachable server is logged once. Raises ConfigError
        if no connection could ever be opened.
        """
        try:
            if await unless_stopped(self._stopping, until_reachable(self.leadership.client)):
                await self._run_reachable()
        finally:
            await self.close()

    async def serve(self) -> None:
        """Work until cancelled. It is called when the lease is held."""
        raise NotImplementedError

    async def drain(self) -> None:
        """Finish started work, while the lease is still held; called also if `serve` was never called."""

    async def close(self) -> None:
        """Close the service's resources, after the release of the lease."""

    async def _run_reachable(self) -> None:
        leading = asyncio.create_task(self.leadership.run(self.stop))
        serving = asyncio.create_task(self._lead())
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
        finally:
            self.ready.clear()
            for task in (serving, stopped):
                task.cancel()
            await asyncio.gather(serving, stopped, return_exceptions=True)
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)

    async def _lead(self) -> None:
        try:
            # A list that was read before the lease was acquired could miss the last writes of the previous leader.
            await self.leadership.acquired()
            await self.serve()
        finally:
            await self.drain()
