"""Standby: a scheduler replica watches the cluster until it gets the lease."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable

from phalanx.daemon.observer import Observer
from phalanx.daemon.signing_keys import known_keys, load_keys
from phalanx.dialects.signatures import Key, Signer
from phalanx.kube.client import KubeClient
from phalanx.kube.leadership import Leadership
from phalanx.scheduling.scheduler import Scheduler

log = logging.getLogger(__name__)

_PERIOD = 1.0


class Standby:
    """Acquisition of the lease by a replica, and of the state of the whole cluster after it.

    A replica that gets the lease within `patience` seconds lists the cluster once, afterwards. A replica that has
    to wait watches the cluster and lists pods and nodes once more when it gets the lease: the earlier state could
    lack the last bindings of the previous leader. Unchanged objects are neither decoded nor processed again.

    Signatures are accepted only with their keys, so the keys are read before any pod; only a leader creates a key.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        leadership: Leadership,
        observer: Observer,
        scheduler: Scheduler,
        signer: Signer,
        *,
        patience: float,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._leadership = leadership
        self._observer = observer
        self._scheduler = scheduler
        self._signer = signer
        self._patience = patience

    async def leads(self, observe: Callable[[], None]) -> None:
        """Return when this replica holds the lease and has listed the whole cluster.

        `observe` starts the observer. It is called once, after the signing keys are in use: a plan mark that was
        read before them would not be accepted.
        """
        acquired = asyncio.ensure_future(self._leadership.acquired())
        try:
            await asyncio.wait({acquired}, timeout=self._patience)
            if acquired.done():
                self._signer.use(await self._own_keys())
                observe()
            else:
                await self._wait(acquired, observe)
            await self._observer.synced()
        finally:
            acquired.cancel()

    async def _wait(self, acquired: asyncio.Future[None], observe: Callable[[], None]) -> None:
        known = await known_keys(self._client, self._namespace)
        self._signer.use(known)
        observe()
        log.info("standby: %s; watching the cluster", self._leadership.line)
        while not acquired.done():
            # Changes that only a cycle consumes must not pile up.
            self._scheduler.queue.absorb_changes()
            await asyncio.wait({acquired}, timeout=_PERIOD)
        own = await self._own_keys()
        self._signer.use(own)
        self._observer.list_again(redeliver=own != known)

    async def _own_keys(self) -> tuple[Key, ...]:
        return await load_keys(self._client, self._namespace, time.time, os.urandom)
