"""Nominations and evictions on an API server: the embedded one, or the one that PHALANX_E2E_KUBECONFIG names."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.dialects.gangs.held_room import HELD_ROOM, decode_held
from phalanx.dialects.signatures import Signer
from phalanx.execution.conditions import NominationOutcome, PodConditions
from phalanx.execution.disruptions import Disruptions
from phalanx.execution.evictor import DELETE, EVICTION_API, EvictionOutcome, Evictor, EvictResult
from phalanx.execution.writes import WritePool
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.paths import Resource
from phalanx.kube.retry import Backoff
from phalanx.model.decisions import Evict, EvictionReason, Nominate
from phalanx.model.gang import GangKey
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer

PODS = Resource("", "v1", "pods", "Pod")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
SIGNER = Signer((("1", b"k" * 32),))
EVICTED, GONE, REFUSED = EvictionOutcome.EVICTED, EvictionOutcome.GONE, EvictionOutcome.REFUSED

Object = dict[str, Any]


class World:
    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.namespace = f"evictions-{secrets.token_hex(3)}"
        self.pool = WritePool(concurrency=4)
        self.conditions = PodConditions(client, self.pool, lambda: 1_900_000_000.0)
        self.through = DELETE
        self.results: dict[str, EvictResult] = {}
        self.nominated: list[NominationOutcome] = []
        evictor = Evictor(
            client,
            self.pool,
            lambda: 1_900_000_000.0,
            through=lambda: self.through,
            attempts=3,
            backoff=lambda: Backoff(base=0.001, cap=0.01),
        )
        self.disruptions = Disruptions(
            self.conditions, evictor, self._evicted, nominated=self.nominated.append, signer=SIGNER
        )

    def _evicted(self, result: EvictResult) -> None:
        self.results[result.evict.name] = result

    async def pod(self, name: str, node: str = "", **labels: str) -> Object:
        """Create a pod that waits, or runs and is ready on a node."""
        spec: Object = {"containers": [{"name": "main", "image": "busybox"}], "schedulerName": "phalanx"}
        metadata = {"name": name, "labels": labels}
        if node:
            spec["nodeName"] = node
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        made: Object = await self.client.create(PODS.path(self.namespace), body)
        if node:
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            path = PODS.path(self.namespace, name, "status")
            made = await self.client.patch(path, {"status": ready}, PatchType.STRATEGIC)
        return made

    async def get(self, name: str) -> Object:
        found: Object = await self.client.get(PODS.path(self.namespace, name))
        return found

    def observe(self, pod: Object) -> None:
        metadata, nominated = pod["metadata"], pod["status"].get("nominatedNodeName", "")
        version = metadata["resourceVersion"]
        room = metadata.get("annotations", {}).get(HELD_ROOM, "")
        self.conditions.observe(
            metadata["uid"], self.namespace, metadata["name"], version, [], nominated=nominated, room=room
        )

    def evict(self, pod: Object, **other: str) -> Evict:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        uid = other.get("uid", uid)
        return Evict(uid, self.namespace, name, "n1", EvictionReason.PREEMPTED, "it is worth less", cause="c1")

    def nominate(self, pod: Object, node: str = "n1", held: tuple[str, ...] = ()) -> Nominate:
        gang = GangKey(self.namespace, "gang")
        return Nominate(
            pod["metadata"]["uid"], self.namespace, pod["metadata"]["name"], node, "c1", gang=gang, held=held
        )

    async def carry_out(self, nominations: list[Nominate], evictions: list[Evict]) -> None:
        self.disruptions.submit(nominations, evictions)
        async with asyncio.timeout(30):
            await self.pool.drained()


def condition(pod: Object, kind: str = "DisruptionTarget") -> Object:
    return next((entry for entry in pod["status"].get("conditions", []) if entry["type"] == kind), {})


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    named, server = os.environ.get("PHALANX_E2E_KUBECONFIG"), None
    kubeconfig = Path(named) if named else tmp_path / "kubeconfig"
    if not named:
        server = ApiServer(ServerOptions(controllers=frozenset()))
        await server.start()
        server.write_kubeconfig(kubeconfig)
    try:
        async with KubeClient(load_config(str(kubeconfig))) as client:
            made = World(client)
            await client.create("/api/v1/namespaces", {"metadata": {"name": made.namespace}})
            yield made
            await made.pool.close()
    finally:
        if server is not None:
            await server.stop()


async def test_nomination_is_written_and_cleared_at_the_binding(world: World) -> None:
    waiting, victim = await world.pod("p"), await world.pod("v", "n1")
    world.observe(waiting)
    await world.carry_out([world.nominate(waiting)], [world.evict(victim)])
    assert (await world.get("p"))["status"]["nominatedNodeName"] == "n1"
    left = await world.get("v")
    assert left["metadata"]["deletionTimestamp"]
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30, "the grace is the pod's own"
    told = condition(left)
    assert (told["status"], told["reason"]) == ("True", "PreemptionByScheduler")
    assert told["message"] == "phalanx: preempted (it is worth less)"
    assert condition(left, "Ready")["status"] == "True"
    assert world.results["v"].outcome is EVICTED


async def test_room_for_expected_members_is_written_with_the_nomination_and_removed_with_it(world: World) -> None:
    waiting, victim = await world.pod("p"), await world.pod("v", "n1")
    world.observe(waiting)
    await world.carry_out([world.nominate(waiting, held=("n2", "n2"))], [world.evict(victim)])
    written = (await world.get("p"))["metadata"]["annotations"][HELD_ROOM]
    gang, uid = GangKey(world.namespace, "gang"), waiting["metadata"]["uid"]
    assert decode_held(written, SIGNER, uid, gang, "n1") == ("n2", "n2")
    assert world.results["v"].outcome is EVICTED
    await world.carry_out([world.nominate(waiting, "")], [])
    assert HELD_ROOM not in (await world.get("p"))["metadata"].get("annotations", {})


async def test_withdrawn_nomination_is_removed(world: World) -> None:
    waiting = await world.pod("p")
    world.observe(waiting)
    await world.carry_out([world.nominate(waiting)], [])
    await world.carry_out([world.nominate(waiting, "")], [])
    assert "nominatedNodeName" not in (await world.get("p"))["status"]
    assert world.nominated == [NominationOutcome.WRITTEN] * 2


async def test_nomination_does_not_reach_a_pod_that_was_bound_before(world: World) -> None:
    waiting, victim = await world.pod("p"), await world.pod("v", "n1")
    world.observe(waiting)
    target = {"apiVersion": "v1", "kind": "Node", "name": "n9"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}
    await world.client.create(PODS.path(world.namespace, "p", "binding"), binding)
    await world.carry_out([world.nominate(waiting)], [world.evict(victim)])
    assert world.results == {}, "until the watch tells what the pod is now"
    world.conditions.forget(waiting["metadata"]["uid"])
    assert world.results["v"].outcome is EvictionOutcome.CALLED_OFF
    assert "nominatedNodeName" not in (await world.get("p"))["status"]


@pytest.mark.parametrize("through", [DELETE, EVICTION_API])
async def test_neither_a_replacement_nor_a_missing_pod_is_evicted(world: World, through: str) -> None:
    world.through = through
    victim = await world.pod("v", "n1")
    gone = {"metadata": {"name": "w", "uid": "uid-of-nobody"}}
    await world.carry_out([], [world.evict(victim, uid="uid-of-the-last-v"), world.evict(gone)])
    assert {name: result.outcome for name, result in world.results.items()} == {"v": GONE, "w": GONE}
    left = await world.get("v")
    assert "deletionTimestamp" not in left["metadata"]
    assert condition(left) == {}


@pytest.mark.parametrize("through", [DELETE, EVICTION_API])
async def test_repeated_eviction_changes_nothing(world: World, through: str) -> None:
    world.through = through
    victim = await world.pod("v", "n1")
    await world.carry_out([], [world.evict(victim)])
    first = await world.get("v")
    world.results.clear()
    await world.carry_out([], [world.evict(victim)])
    assert world.results["v"].outcome is EVICTED
    assert (await world.get("v"))["metadata"]["deletionTimestamp"] == first["metadata"]["deletionTimestamp"]


async def test_disruption_budget_is_enforced_by_the_eviction_api_only(world: World) -> None:
    """No controller maintains the budget here: a budget without a status allows no eviction."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": spec}
    await world.client.create(BUDGETS.path(world.namespace), body)
    victim = await world.pod("v", "n1", app="web")
    world.through = EVICTION_API
    await world.carry_out([], [world.evict(victim)])
    assert world.results["v"].outcome is REFUSED
    assert "disruption budget" in world.results["v"].message
    left = await world.get("v")
    assert "deletionTimestamp" not in left["metadata"]
    assert condition(left) == {}
    world.through = DELETE
    await world.carry_out([], [world.evict(victim)])
    assert world.results["v"].outcome is EVICTED


async def test_eviction_api_writes_the_condition_itself(world: World) -> None:
    world.through = EVICTION_API
    await world.carry_out([], [world.evict(await world.pod("v", "n1"))])
    assert world.results["v"].outcome is EVICTED
    told = condition(await world.get("v"))
    assert (told["status"], told["reason"]) == ("True", "EvictionByEvictionAPI")
