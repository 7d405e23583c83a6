"""From the start to the first plan: a replica that waits for its turn sees the cluster meanwhile."""

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
    """Takes the lease, and sees the whole cluster as it is from then on.

    Who gets the lease within `patience` seconds lists once, after that. Who has to wait for it watches the cluster
    meanwhile, and lists pods and nodes once more when it is its turn: what was seen before could lack the
    last bindings of the leader before. Most of it is known then, and is neither decoded nor told again.

    What the scheduler has signed is believed only with its keys, so they are read before any pod is; only a leader
    makes one if there is none.
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
        """Return when this replica holds the lease and has seen the whole cluster.

        `observe` starts the observer. It is called once, after the signing keys are in use: a plan mark that was
        read before them would not be believed.
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
        log.info("standby: %s; watches the cluster meanwhile", self._leadership.line)
        while not acquired.done():
            # What only a cycle would take note of must not pile up.
            self._scheduler.queue.absorb_changes()
            await asyncio.wait({acquired}, timeout=_PERIOD)
        own = await self._own_keys()
        self._signer.use(own)
        self._observer.list_again(redeliver=own != known)

    async def _own_keys(self) -> tuple[Key, ...]:
        return await load_keys(self._client, self._namespace, time.time, os.urandom)
