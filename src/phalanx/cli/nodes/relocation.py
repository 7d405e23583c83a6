"""Carries a relocation out: wave by wave, with the emptied nodes closed until those who moved run elsewhere."""

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
# A disruption budget may let the next pod go when the one before runs again.
_TRIES = 12


class RelocationOptions(msgspec.Struct, frozen=True):
    """`through` is how pods are evicted. Each wave gets `timeout` seconds until those who moved run again. With
    `keep_closed` the emptied nodes stay closed in the end."""

    through: str = EVICTION_API
    timeout: float = 300.0
    keep_closed: bool = False
    scheduler: str = "phalanx"


class RelocationResult(msgspec.Struct):
    """`evicted` are the pods that left, `placed` those in their stead (and the preemptor's) with their nodes.
    `closed` nodes take no new pods still. `failure` tells why it did not come to its end."""

    evicted: list[str] = []
    placed: dict[str, str] = {}
    closed: list[str] = []
    failure: str = ""


class RelocationError(Exception):
    """The rest of the plan must not be carried out."""


class RelocationRunner:
    """One relocation on its way. `tell` is told every step, a sentence each."""

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
        """Never leaves a node closed that is not to stay so, whatever happens on the way."""
        done = False
        try:
            for name in self._relocation.held:
                await self._close(name)
            for number, wave in enumerate(self._relocation.waves, start=1):
                await self._wave(wave, f"wave {number} of {len(self._relocation.waves)}")
            done = True
        except RelocationError as stop:
            self.outcome.failure = str(stop)
        finally:
            if not (done and self._options.keep_closed):
                await asyncio.shield(self._open(self.outcome.closed))
            await self._pool.close()
        if not self.outcome.failure:
            await self._preemptor()
        return self.outcome

    # nodes

    async def _close(self, name: str) -> None:
        self.outcome.closed.append(name)  # also if the answer to what follows is lost
        await self._retaint(name, closed=True)
        self._tell(f"node {name} takes no new pods")

    async def _open(self, names: Sequence[str]) -> None:
        for name in list(names):
            try:
                async with asyncio.timeout(_LIFT_SECONDS):
                    await self._retaint(name, closed=False)
            except (ApiError, ConnectionLost, TimeoutError) as error:
                self._tell(f"node {name} stays closed ({error}); kubectl taint node {name} {HOLD.key}- opens it")
                self.outcome.failure = self.outcome.failure or f"node {name} could not be opened: {error}"
            else:
                self.outcome.closed.remove(name)
                self._tell(f"node {name} takes pods again")

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
                self._tell(f"pod {evict.namespace}/{evict.name} stays: {result.message}")
            else:
                self.outcome.evicted.append(f"{evict.namespace}/{evict.name}")
        refused = [result for result in results if result.outcome is EvictionOutcome.REFUSED]
        leaving = {result.evict.uid for result in results} - {result.evict.uid for result in refused}
        await self._arrived(leaving, owners)
        if refused:
            first = refused[0].evict
            raise RelocationError(f"pod {first.namespace}/{first.name} could not be evicted: {refused[0].message}")

    async def _owners(self, wave: Sequence[Move]) -> dict[str, int]:
        """uid of the controller -> how many of its pods have a node now. Raises StoppedError if a pod is not where
        the plan has seen it."""
        owners: dict[str, int] = {}
        for namespace in sorted({move.namespace for move in wave}):
            listed = (await self._client.list_all(PODS.path(namespace)))["items"]
            pods = {pod["metadata"]["name"]: pod for pod in listed}
            self._known |= {pod["metadata"]["uid"] for pod in listed}
            for move in (move for move in wave if move.namespace == namespace):
                pod = pods.get(move.name)
                if pod is None or (pod["metadata"]["uid"], pod["spec"].get("nodeName")) != (move.uid, move.source):
                    raise RelocationError(f"pod {namespace}/{move.name} is not where it was: make a new plan")
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

    async def _arrived(self, leaving: set[str], owners: Mapping[str, int]) -> None:
        """Returns when all have left and as many as before run in their stead."""

        def holds(pods: Pods) -> bool:
            if any(pod["metadata"]["uid"] in leaving for pod in pods.values()):
                return False
            return all(
                sum(1 for pod in pods.values() if _owner(pod) == owner and _has_node(pod)) >= before
                for owner, before in owners.items()
            )

        try:
            pods = await wait_until(self._client, PODS, holds, seconds=self._options.timeout)
        except TimeoutError:
            raise RelocationError(
                f"after {self._options.timeout:g} seconds not everyone who moved has a node again"
            ) from None
        for (namespace, name), pod in sorted(pods.items()):
            fresh = pod["metadata"]["uid"] not in self._known
            if fresh and _owner(pod) in owners and _has_node(pod):
                self.outcome.placed[f"{namespace}/{name}"] = pod["spec"]["nodeName"]

    async def _preemptor(self) -> None:
        names = {placement.pod for placement in self._relocation.placements}

        def holds(pods: Pods) -> bool:
            there = {f"{namespace}/{name}" for (namespace, name), pod in pods.items() if _has_node(pod)}
            return len(names & there) == len(names)

        if not names:
            return
        self._tell(f"waiting for {counted(len(names), 'pod')} for whom room was made")
        try:
            pods = await wait_until(self._client, PODS, holds, seconds=self._options.timeout)
        except TimeoutError:
            self.outcome.failure = "the room is there, but not everyone whom it was made for has a node yet"
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
        f"it moves so that {'nodes become free' if relocation.freed else 'others find room'}; "
        f"there is room for it on node {move.target}",
        cause="defragmentation",
    )


def _owner(pod: Mapping[str, Any]) -> str:
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(owner.get("uid")) for owner in owners if owner.get("controller")), "")


def _has_node(pod: Mapping[str, Any]) -> bool:
    """Whether it is somewhere, or was until its work was done."""
    if pod["metadata"].get("deletionTimestamp") or (pod.get("status") or {}).get("phase") == "Failed":
        return False
    return bool(pod["spec"].get("nodeName"))
