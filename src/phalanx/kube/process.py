"""Frame of a process: run services until a signal, and services of which one replica leads."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Protocol

from phalanx.kube.api_server import until_reachable
from phalanx.kube.failures import Failures
from phalanx.kube.leadership import Leadership, unless_stopped


class RunningService(Protocol):
    """Service whose `run` returns after `stop`; `ready` is set while it serves."""

    @property
    def ready(self) -> asyncio.Event: ...

    def stop(self) -> None: ...

    async def run(self) -> None: ...


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StoppableWork:
    """Coroutine function as a service; it is called with the event that requests its end."""

    def __init__(self, work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
        self.ready = asyncio.Event()
        self._work = work
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        self.ready.set()
        await self._work(self._stopping)


async def run_until_signal(
    *services: RunningService,
    announce: Callable[[], Awaitable[None]] | None = None,
    signals: Collection[signal.Signals] = STOP_SIGNALS,
) -> None:
    """Run services until one of `signals`, or until one service ends, which stops the others; raise the first
    failure.

    `announce` waits until they are ready and logs it; it is cancelled at the end.
    """

    def stop() -> None:
        for service in services:
            service.stop()

    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, stop)
    announcing = asyncio.ensure_future(announce()) if announce is not None else None
    try:
        await asyncio.gather(*(_run_then_stop(service.run(), stop) for service in services))
    finally:
        if announcing is not None:
            announcing.cancel()


async def _run_then_stop(run: Coroutine[Any, Any, None], stop: Callable[[], None]) -> None:
    """Run one service, and stop all services when it ends or fails."""
    try:
        await run
    finally:
        stop()


class LeadingService:
    """Service of which one replica works at a time; without a lease this replica leads from the start.

    `run` ends when `stop` is called or the lease is lost: see `leadership.lost_because`. `serve` sets `ready`.
    """

    def __init__(self, leadership: Leadership) -> None:
        self.ready = asyncio.Event()
        self.leadership = leadership
        self._failures = Failures()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Request the end of `run`, which still awaits `drain` before it returns."""
        self._stopping.set()

    async def run(self) -> None:
        """Run `serve` as the leader until it ends (its exception is raised), or until stopped; release the lease
        last.

        No request is sent before the API server answers; an unreachable server is logged once. Raises ConfigError
        if no connection could ever be opened.
        """
        try:
            if await unless_stopped(self._stopping, until_reachable(self.leadership.client)):
                await self._run_reachable()
        finally:
            await self.close()

    async def stand_by(self) -> None:
        """Wait as a standby replica; return when the lease is held and `serve` can begin."""
        await self.leadership.acquired()

    async def serve(self) -> None:
        """Do the service's work until cancelled; called when the lease is held."""
        raise NotImplementedError

    async def drain(self) -> None:
        """Finish started writes, while the lease is still held; called also if `serve` was never called."""

    async def close(self) -> None:
        """Close the service's resources, after the release of the lease."""

    def lease_lost(self) -> None:
        """Stop the service because the lease is lost; no write is sent any more."""
        self.stop()

    async def _run_reachable(self) -> None:
        try:
            # A group, so that no task outlives a `run` that is cancelled again while it ends.
            async with asyncio.TaskGroup() as tasks:
                leading = tasks.create_task(self.leadership.run(self.lease_lost))
                serving = tasks.create_task(self._lead())
                stopped = tasks.create_task(self._stopping.wait())
                try:
                    await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in (serving, stopped):
                        task.cancel()
                    await asyncio.wait([serving, stopped])
                    leading.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _lead(self) -> None:
        try:
            # A list that was read before the lease was acquired could miss the last writes of the previous leader.
            await self.stand_by()
            await self.serve()
        finally:
            self.ready.clear()
            await self.drain()
