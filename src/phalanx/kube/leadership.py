"""Whether this process may write: always, or while it holds the lease."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from phalanx.kube.client import KubeClient
from phalanx.kube.lease import LeaderElector, LeadershipLost
from phalanx.kube.lease_thread import LeaderThread

log = logging.getLogger(__name__)


class LeaseOptions(msgspec.Struct, frozen=True):
    """Which lease, and its times in seconds (see LeaderElector)."""

    namespace: str
    name: str
    duration: float
    renew_deadline: float
    retry_period: float


class Leadership:
    """Held from the start where no lease is asked for.

    The election runs on a thread and a connection of its own: a renewal must queue neither behind bindings nor
    behind a list of a hundred thousand pods that is being read.
    """

    def __init__(self, client: KubeClient, lease: LeaseOptions | None) -> None:
        """`client` is that of whoever leads; the election makes its own from its settings."""
        self.client = client
        self._thread = (
            LeaderThread(client.config, lambda own: self._elector(own, lease)) if lease is not None else None
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._acquired = asyncio.Event()
        #: How it was lost, in a sentence; "" while it was not.
        self.lost_because = ""

    def _elector(self, own: KubeClient, lease: LeaseOptions) -> LeaderElector:
        own.answered = self._answered
        return _elector(own, lease)

    def _answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """The election's requests are counted with those of whoever leads, in his thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody counts any more
                self._loop.call_soon_threadsafe(lambda: self.client.answered(method, path, status, seconds))

    def holds(self) -> bool:
        """Asked before every write."""
        return self._thread is None or self._thread.is_leader()

    @property
    def line(self) -> str:
        """Who waits for whom, for the log."""
        if self._thread is None:
            return "nobody waits"
        return f"{self._thread.identity} waits for its turn; {self._thread.holder or 'nobody known'} leads"

    async def acquired(self) -> None:
        if self._thread is not None:
            await self._acquired.wait()

    async def run(self, lost: Callable[[], None]) -> None:
        """Until cancelled, which gives the lease back; calls `lost` when it was lost."""
        thread = self._thread
        if thread is None:
            return
        self._loop = asyncio.get_running_loop()
        thread.start()
        leading, ended = asyncio.wrap_future(thread.leading), asyncio.wrap_future(thread.ended)
        try:
            await asyncio.wait({leading, ended}, return_when=asyncio.FIRST_COMPLETED)
            if leading.done() and not leading.cancelled():
                self._acquired.set()
            await ended
        except LeadershipLost as error:
            log.error("stopping: %s", error)
            self.lost_because = error.because
            lost()
        finally:
            await thread.stop()


def _elector(client: KubeClient, lease: LeaseOptions) -> LeaderElector:
    return LeaderElector(
        client,
        lease.name,
        identity=f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}",
        namespace=lease.namespace,
        lease_duration=lease.duration,
        renew_deadline=lease.renew_deadline,
        retry_period=lease.retry_period,
    )


async def unless_stopped(stopping: asyncio.Event, wanted: Awaitable[object]) -> bool:
    """Waits for something, which raises what it raised, or for the order to stop: then False."""
    waiting = [asyncio.ensure_future(wanted), asyncio.ensure_future(stopping.wait())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if waiting[0].done():
            waiting[0].result()
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return not stopping.is_set()
