"""Execution of a defragmentation plan, wave by wave; emptied nodes stay closed until the moved pods run
elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from phalanx.execution.evictor import EVICTION_API, EvictionOutcome, Evictor, EvictResult
from phalanx.execution.writes import WritePool
from phalanx.kube.changes import Key
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import NODES, PODS
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import Backoff
from phalanx.kube.wait import wait_until
from phalanx.model.decisions import Evict, EvictionReason
from phalanx.model.node import HOLD
from phalanx.scheduling.defragmentation.relocation import Move, Relocation, counted

Pods = Mapping[Key, dict[str, Any]]

_CONFLICTS = 10
_LIFT_SECONDS = 10.0
# A disruption budget can allow the next eviction only after the previous pod runs again, so evictions are retried.
_TRIES = 12


class RelocationOptions(msgspec.Struct, frozen=True):
    """Options for the execution of a defragmentation plan.

    `through` is the API for evictions. Each wave has `timeout` seconds until its moved pods run again. With
    `keep_closed` the emptied nodes stay closed at the end.
    """

    through: str = EVICTION_API
    timeout: float = 300.0
    keep_closed: bool = False
    scheduler: str = "phalanx"


class RelocationResult(msgspec.Struct):
    """Result of executing a defragmentation plan.

    `evicted` are the evicted pods, `placed` their replacements (and the preemptor's pods) with their nodes.
    `closed` nodes still accept no new pods. `failure` is the reason of an incomplete execution.
    """

    evicted: list[str] = []
    placed: dict[str, str] = {}
    closed: list[str] = []
    failure: str = ""


class RelocationError(Exception):
    """Failure that stops the execution of a defragmentation plan."""


class RelocationRunner:
    """Execution of one defragmentation plan. `tell` receives one sentence per step."""

    def __init__(
        self, client: KubeClient, relocation: Relocation, options: RelocationOptions, tell: Callable[[str], None]
    ) -> None:
        self._client = client
        self._relocation = relocation
        self._options = options
        self._tell = tell
        self._pool = WritePool(concurrency=8)
        self._evictor = Evictor(
            client,
            self._pool,
            time.time,
            scheduler=options.scheduler,
            through=lambda: options.through,
            attempts=_TRIES,
            backoff=lambda: Backoff(base=0.5, cap=10.0),
        )
        self.outcome = RelocationResult([], {}, [])
        self._known: set[str] = set()

    async def run(self) -> RelocationResult:
        """Execute the plan and return its result. Nodes are opened again even after a failure."""
        completed = False
        try:
            for name in self._relocation.held:
                await self._close(name)
            for number, wave in enumerate(self._relocation.waves, start=1):
                await self._wave(wave, f"wave {number} of {len(self._relocation.waves)}")
            completed = True
        except RelocationError as stop:
            self.outcome.failure = str(stop)
        finally:
            if not (completed and self._options.keep_closed):
                await asyncio.shield(self._open(self.outcome.closed))
            await self._pool.close()
        if not self.outcome.failure:
            await self._preemptor()
        return self.outcome

    # nodes

    async def _close(self, name: str) -> None:
        self.outcome.closed.append(name)  # before the request: its answer can be lost
        await self._retaint(name, closed=True)
        self._tell(f"node {name} is closed to new pods")

    async def _open(self, names: Sequence[str]) -> None:
        for name in list(names):
            try:
                async with asyncio.timeout(_LIFT_SECONDS):
                    await self._retaint(name, closed=False)
            except (ApiError, ConnectionLost, TimeoutError) as error:
                self._tell(f"node {name} stays closed ({error}); to open it: kubectl taint node {name} {HOLD.key}-")
                self.outcome.failure = self.outcome.failure or f"node {name} cannot be opened: {error}"
            else:
                self.outcome.closed.remove(name)
                self._tell(f"node {name} is open to new pods again")

    async def _retaint(self, name: str, *, closed: bool) -> None:
        path = NODES.path(None, name)
        for attempt in range(_CONFLICTS):
            node = await self._client.get(path)
            taints = [taint for taint in (node["spec"].get("taints") or []) if taint.get("key") != HOLD.key]
            if closed:
                taints.append({"key": HOLD.key, "effect": HOLD.effect})
            version = node["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": taints or None}}
            try:
                await self._client.patch(path, patch, PatchType.MERGE)
            except ApiError as error:
                if error.status != 409 or attempt == _CONFLICTS - 1:
                    raise
            else:
                return

    # pods

    async def _wave(self, wave: Sequence[Move], name: str) -> None:
        owners = await self._owners(wave)
        nodes = ", ".join(sorted({move.source for move in wave}))
        self._tell(f"{name}: {counted(len(wave), 'pod')} from {nodes}")
        results = await self._evict(wave)
        for result in results:
            evict = result.evict
            if result.outcome is EvictionOutcome.REFUSED:
                self._tell(f"pod {evict.namespace}/{evict.name} is not evicted: {result.message}")
            else:
                self.outcome.evicted.append(f"{evict.namespace}/{evict.name}")
        refused = [result for result in results if result.outcome is EvictionOutcome.REFUSED]
        leaving = {result.evict.uid for result in results} - {result.evict.uid for result in refused}
        await self._wait_for_replacements(leaving, owners)
        if refused:
            first = refused[0].evict
            raise RelocationError(f"pod {first.namespace}/{first.name} cannot be evicted: {refused[0].message}")

    async def _owners(self, wave: Sequence[Move]) -> dict[str, int]:
        """Return the number of pods that have nodes now, for each controller (by uid) of the moved pods.

        Raises RelocationError if a pod is not on the node that the plan names.
        """
        owners: dict[str, int] = {}
        for namespace in sorted({move.namespace for move in wave}):
            listed = (await self._client.list_all(PODS.path(namespace)))["items"]
            pods = {pod["metadata"]["name"]: pod for pod in listed}
            self._known |= {pod["metadata"]["uid"] for pod in listed}
            for move in (move for move in wave if move.namespace == namespace):
                pod = pods.get(move.name)
                if pod is None or (pod["metadata"]["uid"], pod["spec"].get("nodeName")) != (move.uid, move.source):
                    raise RelocationError(
                        f"pod {namespace}/{move.name} has left node {move.source}; "
                        "run phalanx defrag again for a new plan"
                    )
                owner = _owner(pod)
                owners[owner] = sum(1 for other in listed if _owner(other) == owner and _has_node(other))
        return owners

    async def _evict(self, wave: Sequence[Move]) -> list[EvictResult]:
        results: list[EvictResult] = []
        done = asyncio.Event()

        def report(result: EvictResult) -> None:
            results.append(result)
            if len(results) == len(wave):
                done.set()

        self._evictor.submit([_eviction(move, self._relocation) for move in wave], report)
        if wave:
            await done.wait()
        return sorted(results, key=lambda result: (result.evict.namespace, result.evict.name))

    async def _wait_for_replacements(self, leaving: set[str], owners: Mapping[str, int]) -> None:
        """Wait until the evicted pods are deleted and each controller has as many pods on nodes as before."""

        def is_done(pods: Pods) -> bool:
            if any(pod["metadata"]["uid"] in leaving for pod in pods.values()):
                return False
            return all(
                sum(1 for pod in pods.values() if _owner(pod) == owner and _has_node(pod)) >= before
                for owner, before in owners.items()
            )

        try:
            pods = await wait_until(self._client, PODS, is_done, seconds=self._options.timeout)
        except TimeoutError:
            raise RelocationError(
                f"timeout after {self._options.timeout:g} seconds: not all moved pods have nodes again"
            ) from None
        for (namespace, name), pod in sorted(pods.items()):
            is_new = pod["metadata"]["uid"] not in self._known
            if is_new and _owner(pod) in owners and _has_node(pod):
                self.outcome.placed[f"{namespace}/{name}"] = pod["spec"]["nodeName"]

    async def _preemptor(self) -> None:
        names = {placement.pod for placement in self._relocation.placements}

        def is_done(pods: Pods) -> bool:
            placed = {f"{namespace}/{name}" for (namespace, name), pod in pods.items() if _has_node(pod)}
            return len(names & placed) == len(names)

        if not names:
            return
        self._tell(f"waiting for {counted(len(names), 'pod')} to start in the freed room")
        try:
            pods = await wait_until(self._client, PODS, is_done, seconds=self._options.timeout)
        except TimeoutError:
            self.outcome.failure = "the room is free, but not all pods that need it have nodes yet"
            return
        for (namespace, name), pod in sorted(pods.items()):
            if f"{namespace}/{name}" in names:
                self.outcome.placed[f"{namespace}/{name}"] = pod["spec"]["nodeName"]


def _eviction(move: Move, relocation: Relocation) -> Evict:
    return Evict(
        move.uid,
        move.namespace,
        move.name,
        move.source,
        EvictionReason.RESCHEDULED,
        f"moved to {'empty nodes' if relocation.freed else 'make room for a waiting gang'}; "
        f"it fits on node {move.target}",
        cause="defragmentation",
    )


def _owner(pod: Mapping[str, Any]) -> str:
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(owner.get("uid")) for owner in owners if owner.get("controller")), "")


def _has_node(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is bound and neither terminating nor failed (a succeeded pod counts)."""
    if pod["metadata"].get("deletionTimestamp") or (pod.get("status") or {}).get("phase") == "Failed":
        return False
    return bool(pod["spec"].get("nodeName"))
