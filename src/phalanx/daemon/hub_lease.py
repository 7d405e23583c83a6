"""Lease of the hub: pods that a hub has dispatched here start only while it is renewed (docs/many-clusters.md).

A cluster that is restored from a backup has copies of gangs that the hub has since moved to another cluster. The
hub renews its lease only after it has deleted such copies, and each renewal names a later time. A lease that is
older than one seen before, or that is not renewed, means that the hub has not checked this cluster yet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from phalanx.dialects.core import PodObject
from phalanx.dialects.dispatched import HUB_LEASE, LEASE_SECONDS, ORIGIN_LABEL, STOP, WHEN_LOST
from phalanx.execution.binder import Guard
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.lease import LEASES
from phalanx.kube.timestamps import parse_time
from phalanx.model.decisions import Bind

log = logging.getLogger(__name__)

# Seconds between two reads of the lease: with pods of a hub here, and without.
_PERIOD, _IDLE_PERIOD = 1.0, 30.0
# Seconds until a binding is retried that waits only for the next read.
_SOON = 0.02


class _Dispatched(msgspec.Struct):
    namespace: str
    name: str
    #: Time of the last watch event, in monotonic seconds.
    seen: float
    #: Whether the pod is on a node and has to be stopped when the hub is lost.
    stoppable: bool


class HubLease:
    """Check of pods that a hub has dispatched: their bindings wait for the hub's lease.

    `guard` makes the check that this one is added to. `clock` is monotonic seconds. `wake` is called when pods that
    were blocked are free to start.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        guard: Callable[[], Guard],
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._path = LEASES.path(namespace, HUB_LEASE)
        self._guard = guard
        self._clock = clock
        self._wake = wake
        self._pods: dict[str, _Dispatched] = {}
        self._sooner = asyncio.Event()
        #: Latest renewal time, and the monotonic time at which a renewal later than another was seen.
        self._latest: float | None = None
        self._renewed: float | None = None
        #: Start of the last read that found no older lease than before; None after a failed read.
        self._looked: float | None = None
        self._began = clock()

    def pod_seen(self, pod: PodObject) -> None:
        metadata, uid = pod.metadata, pod.metadata.uid
        if ORIGIN_LABEL not in metadata.labels or pod.status.phase in ("Succeeded", "Failed"):
            if self._pods:
                self._pods.pop(uid, None)
            return
        stoppable = bool(pod.spec.node_name) and metadata.annotations.get(WHEN_LOST) == STOP
        stoppable = stoppable and metadata.deletion_timestamp is None
        self._pods[uid] = _Dispatched(metadata.namespace, metadata.name, self._clock(), stoppable)
        if not pod.spec.node_name and not pod.spec.scheduling_gates:
            self._sooner.set()

    def pod_gone(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def guard(self) -> Guard:
        """Return a check for bindings that have just been planned, which includes the hub's lease."""
        guard = self._guard()

        def objection(bind: Bind) -> str | float | None:
            return self._objection(bind) or guard(bind)

        return objection

    def _objection(self, bind: Bind) -> str | float | None:
        pod = self._pods.get(bind.uid)
        if pod is None:
            return None
        if self._renewed is None or self._clock() - self._renewed > LEASE_SECONDS:
            return "the hub that dispatched it has not renewed its lease"
        if self._looked is None:
            return "the lease of the hub that dispatched it cannot be read"
        # A read that began before the pod event could be older than the restore of a backup.
        return _SOON if self._looked < pod.seen else None

    async def run(self) -> None:
        """Read the hub's lease periodically until cancelled."""
        while True:
            self._sooner.clear()
            await self._look()
            await self._stop_lost()
            with suppress(TimeoutError):
                async with asyncio.timeout(_PERIOD if self._pods or self._latest is not None else _IDLE_PERIOD):
                    await self._sooner.wait()

    async def _look(self) -> None:
        began, usable = self._clock(), self._looked is not None and self._renewed is not None
        try:
            lease = await self._client.get(self._path)
            moment = parse_time(str((lease.get("spec") or {}).get("renewTime") or ""))
        except (ApiError, ConnectionLost, ConfigError, ValueError) as error:
            if usable and self._pods:
                log.warning("the hub's lease cannot be read: %s", error)
            self._looked = None
            return
        if self._latest is not None and moment < self._latest:
            # The cluster was restored from a backup: only a later renewal counts.
            log.warning("the hub's lease is older than before; pods of the hub wait until it is renewed")
            self._looked = self._renewed = None
            self._latest = moment
            return
        if self._latest is not None and moment > self._latest:
            self._renewed = began
        self._latest, self._looked = moment, began
        if not usable and self._renewed is not None:
            self._wake()

    async def _stop_lost(self) -> None:
        """Delete the pods of gangs with lost-cluster policy Stop after the hub's lease has expired."""
        last_renewal = self._renewed if self._renewed is not None else self._began
        if self._clock() - last_renewal <= LEASE_SECONDS:
            return
        for uid, pod in list(self._pods.items()):
            if not pod.stoppable:
                continue
            log.warning(
                "%s/%s is stopped: the hub that dispatched it has not renewed its lease", pod.namespace, pod.name
            )
            try:
                await self._client.delete(PODS.path(pod.namespace, pod.name), uid=uid)
                pod.stoppable = False
            except (ApiError, ConnectionLost, ConfigError) as error:
                log.warning("%s/%s was not stopped: %s", pod.namespace, pod.name, error)
