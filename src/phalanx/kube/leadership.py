"""Right of this process to write to the API: unconditional without a lease, else while it holds the lease."""

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
    """Name of a leader election lease and its times in seconds (see LeaderElector)."""

    namespace: str
    name: str
    duration: float
    renew_deadline: float
    retry_period: float


class Leadership:
    """Leadership of this process, held from the start if no lease is configured.

    The election has its own thread and connection: a renewal must not queue behind bindings or behind the read of
    a list of a hundred thousand pods.
    """

    def __init__(self, client: KubeClient, lease: LeaseOptions | None) -> None:
        """Create the leadership. `client` is the service's client; the election creates its own client from the
        same settings."""
        self.client = client
        self._thread = (
            LeaderThread(client.config, lambda own: self._elector(own, lease)) if lease is not None else None
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._acquired = asyncio.Event()
        #: Reason for the loss as a sentence; "" while the lease is not lost.
        self.lost_because = ""

    def _elector(self, own: KubeClient, lease: LeaseOptions) -> LeaderElector:
        own.answered = self._answered
        return _elector(own, lease)

    def _answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request of the leader election with those of `client`, on the event loop of the service."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, so the counters are not read any more
                self._loop.call_soon_threadsafe(lambda: self.client.answered(method, path, status, seconds))

    def holds(self) -> bool:
        """Return whether this process is the leader; called before every write."""
        return self._thread is None or self._thread.is_leader()

    @property
    def line(self) -> str:
        """Holder of the lease and this candidate, as one line for the log."""
        if self._thread is None:
            return "no lease is configured: this process leads"
        return f"{self._thread.identity} waits for the lease; {self._thread.holder or 'no known replica'} leads"

    async def acquired(self) -> None:
        if self._thread is not None:
            await self._acquired.wait()

    async def run(self, lost: Callable[[], None]) -> None:
        """Run the leader election until cancelled, which releases the lease; call `lost` if the lease is lost."""
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


async def unless_stopped(stopping: asyncio.Event, awaited: Awaitable[object]) -> bool:
    """Await `awaited`, and raise its exception. Return False if `stopping` was set first."""
    tasks = [asyncio.ensure_future(awaited), asyncio.ensure_future(stopping.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return not stopping.is_set()
