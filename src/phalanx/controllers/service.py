"""Service of the controllers: watches and reconciles objects until stopped."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence

import msgspec

from phalanx.controllers.controller import ControllerContext, Reconciler
from phalanx.controllers.served_watches import ServedWatches
from phalanx.execution.writes import PooledClient, Urgency, WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.event_forms import CoreForm
from phalanx.kube.events import EventRecorder
from phalanx.kube.leadership import Leadership, LeaseOptions
from phalanx.kube.process import LeadingService

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 5.0


class ControllerOptions(msgspec.Struct, frozen=True):
    """Options of the controllers' process. `workers` is the number of concurrent reconciliations per controller.
    The lease times are those of kube-scheduler."""

    scheduler_names: tuple[str, ...] = ("phalanx",)
    concurrency: int = 64
    workers: int = 16
    leader_elect: bool = False
    lease_namespace: str = "kube-system"
    lease_name: str = "phalanx-controllers"
    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0
    ssh: bool = True


class ControllerService(LeadingService):
    """Controllers of one API server; `ready` is set after all watched kinds have been listed."""

    def __init__(
        self,
        client: KubeClient,
        options: ControllerOptions,
        make: Callable[[ControllerContext], Sequence[Reconciler]],
    ) -> None:
        lease = LeaseOptions(
            options.lease_namespace,
            options.lease_name,
            options.lease_seconds,
            options.renew_seconds,
            options.retry_seconds,
        )
        super().__init__(Leadership(client, lease if options.leader_elect else None))
        self.options = options
        self._client = client
        self._pool = WritePool(options.concurrency, self.leadership.holds, self._failures)
        client.throttled = self._pool.slow_down
        self._recorder = EventRecorder(
            PooledClient(client, self._pool, Urgency.EVENT),
            controller="phalanx-controllers",
            instance=f"phalanx-controllers-{socket.gethostname()}",
            form=CoreForm(),
        )
        context = ControllerContext(
            client=client,
            writer=PooledClient(client, self._pool, Urgency.STATUS),
            recorder=self._recorder,
            failures=self._failures,
            clock=time.time,
            scheduler_names=options.scheduler_names,
            ssh=options.ssh,
        )
        self.controllers = make(context)

    async def run(self) -> None:
        recording = asyncio.create_task(self._failures.keep_running("event recorder", self._recorder.run))
        try:
            await super().run()
        finally:
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)

    async def serve(self) -> None:
        watches = ServedWatches(self._client, self.controllers, self._failures)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watches.run())
            await watches.synced()
            self.ready.set()
            for controller in self.controllers:
                tasks.create_task(self._work(controller))

    async def _work(self, controller: Reconciler) -> None:
        await self._failures.keep_running(controller.name, lambda: controller.run(self.options.workers))

    async def drain(self) -> None:
        """Complete pending writes while the lease is still held."""
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                await self._pool.finish()
        except TimeoutError:
            log.warning("%d pending writes were dropped at shutdown", len(self._pool))
        await self._pool.close()
