"""Thread for the leader election, so that a long scheduling cycle cannot delay a renewal."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from contextlib import suppress

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.kube.lease import LeaderElector

__all__ = ["LeaderThread"]


class LeaderThread:
    """Thread that runs the leader election with its own client and event loop.

    ``leading`` is done when the lease is held; ``ended`` when the election has ended, with LeadershipLost (or
    another failure) as its exception, or None after ``stop``. Both are concurrent futures: wrap them with
    asyncio.wrap_future. ``elector`` creates the LeaderElector from the thread's client.
    """

    def __init__(self, config: ClusterConfig, elector: Callable[[KubeClient], LeaderElector]) -> None:
        self.leading: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._config = config
        self._make = elector
        self._elector: LeaderElector | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="leader-election", daemon=True)

    def start(self) -> None:
        # A caller that awaits the end can be cancelled; that must not cancel this future.
        self.ended.set_running_or_notify_cancel()
        self._thread.start()

    def is_leader(self, margin: float = 0.0) -> bool:
        """Return whether this process leads (LeaderElector.is_leader); False before the lease is held and after the
        election has ended."""
        return self._elector is not None and not self.ended.done() and self._elector.is_leader(margin)

    @property
    def identity(self) -> str:
        """Holder identity of this process in the lease; "" before the thread runs."""
        return self._elector.identity if self._elector is not None else ""

    @property
    def holder(self) -> str:
        """Last known holder of the lease; "" for none."""
        return self._elector.holder if self._elector is not None else ""

    async def stop(self) -> None:
        """Release the lease and end the thread. Call it only after the last write is answered."""
        with self._lock:
            self._stopped = True
            if self._loop is not None and self._task is not None and not self.ended.done():
                with suppress(RuntimeError):  # the loop can close at this moment
                    self._loop.call_soon_threadsafe(self._task.cancel)
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            self.ended.set_result(None)
        except BaseException as error:
            self.ended.set_exception(error)
        else:
            self.ended.set_result(None)
        self.leading.cancel()

    async def _main(self) -> None:
        async with KubeClient(self._config, max_connections=1) as client:
            self._elector = elector = self._make(client)
            with self._lock:
                if self._stopped:
                    return
                self._loop = asyncio.get_running_loop()
                self._task = asyncio.create_task(elector.run())
            announcing = asyncio.create_task(self._announce(elector))
            try:
                await self._task
            finally:
                announcing.cancel()
                with suppress(asyncio.CancelledError):
                    await announcing

    async def _announce(self, elector: LeaderElector) -> None:
        await elector.leading.wait()
        if self.leading.set_running_or_notify_cancel():
            self.leading.set_result(None)
