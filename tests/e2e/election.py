"""Leader election on the event loop of the test: it has the clock of the test (tests/e2e/clock.py), so that no busy
machine takes a lease away, and it ends with a process that is killed. The thread that it has otherwise is tested in
tests/kube/test_lease.py."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from phalanx.kube.client import KubeClient
from phalanx.kube.leadership import Leadership
from phalanx.kube.lease_thread import LeaderThread
from tests.e2e.wire import Wire

__all__ = ["elect_on_this_loop"]


def elect_on_this_loop(leadership: Leadership, process: Wire) -> None:
    """Let an election run on this loop, over a wire of its own that dies with that of the `process`."""
    if leadership._thread is not None:
        leadership._thread = _Election(leadership._thread, process)


class _Election(LeaderThread):
    def __init__(self, thread: LeaderThread, process: Wire) -> None:
        super().__init__(thread._config, thread._make)
        self._wire = Wire()
        self._wire.dead, self._wire.buried = process.dead, process.buried
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.ended.set_running_or_notify_cancel()
        self._running = asyncio.create_task(self._run_here())

    async def stop(self) -> None:
        if self._running is not None:
            if self._task is not None and not self.ended.done():
                self._task.cancel()
            await asyncio.wait([self._running])

    async def _run_here(self) -> None:
        try:
            await self._elect()
        except asyncio.CancelledError:
            self.ended.set_result(None)
        except BaseException as error:
            self.ended.set_exception(error)
        else:
            self.ended.set_result(None)
        self.leading.cancel()

    async def _elect(self) -> None:
        transports = self._wire.transports
        async with KubeClient(self._config, max_connections=1, transports=transports) as client:
            self._elector = elector = self._make(client)
            self._task = asyncio.create_task(elector.run())
            announcing = asyncio.create_task(self._announce(elector))
            try:
                await self._task
            finally:
                announcing.cancel()
                with suppress(asyncio.CancelledError):
                    await announcing
