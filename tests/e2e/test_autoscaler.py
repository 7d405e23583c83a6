"""A cluster autoscaler, played over the API: it adds nodes for unschedulable pods and removes empty ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from phalanx.kube.paths import Resource
from tests.e2e.clock import passing
from tests.e2e.job_cluster import job_cluster
from tests.e2e.world import NODES, PODS, Object, World, condition

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.feature("node-requests"),
]

GPU = "nvidia.com/gpu"
GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
POLICY = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: overcommit}, {name: proportion}, {name: predicates}]
phalanx: {autoscaler: cluster-autoscaler}
"""


class Autoscaler:
    """Node pool of at most `largest` nodes with `gpus` cards each.

    As cluster-autoscaler it sees pods with PodScheduled=False and reason Unschedulable, without gates, without a
    node and without a nominated node. It packs them on new nodes, and removes nodes that no pod uses or needs.
    """

    def __init__(self, world: World, largest: int, gpus: int = 8) -> None:
        self._world, self._largest, self._gpus = world, largest, gpus
        self._made = 0
        self.nodes: list[str] = []
        self.peak = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(10)
            await self.step()

    async def step(self) -> None:
        pods = await self._world.list(PODS)
        unschedulable = [_gpus(each) for each in pods if _is_unschedulable(each)]
        wanted = sum(gpus for gpus in unschedulable if gpus <= self._gpus)
        used = {each["spec"].get("nodeName") for each in pods}
        free = [node for node in self.nodes if node not in used]
        needed = -(-wanted // self._gpus)
        while len(free) < needed and len(self.nodes) < self._largest:
            name = f"g{self._made}"
            self._made += 1
            node = await self._world.node(name, nvidia_com__gpu=self._gpus)
            self.nodes.append(node["metadata"]["name"])
            free.append(node["metadata"]["name"])
        self.peak = max(self.peak, len(self.nodes))
        for unused in free[needed:]:
            self.nodes.remove(unused)
            await self._world.client.delete(NODES.path(None, unused))


def _is_unschedulable(pod: Object) -> bool:
    spec, status = pod["spec"], pod.get("status") or {}
    scheduled = condition(pod, "PodScheduled")
    told = (scheduled.get("status"), scheduled.get("reason")) == ("False", "Unschedulable")
    waits = not (spec.get("nodeName") or spec.get("schedulingGates") or status.get("nominatedNodeName"))
    return told and waits and not pod["metadata"].get("deletionTimestamp")


def _gpus(pod: Object) -> int:
    return sum(int(each["resources"]["requests"].get(GPU, 0)) for each in pod["spec"]["containers"])


@pytest_asyncio.fixture(loop_scope="session")
async def world(tmp_path: Path) -> AsyncIterator[World]:
    with passing():
        async with job_cluster(tmp_path, POLICY) as made:
            yield made


@contextlib.asynccontextmanager
async def autoscaled(world: World, largest: int) -> AsyncIterator[Autoscaler]:
    autoscaler = Autoscaler(world, largest)
    running = asyncio.create_task(autoscaler.run())
    try:
        yield autoscaler
    finally:
        running.cancel()


def _template(gpus: int = 8) -> Object:
    resources = {"requests": {"cpu": "1", GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    container = {"name": "c", "image": "busybox", "resources": resources}
    return {"spec": {"restartPolicy": "Never", "schedulerName": "phalanx", "containers": [container]}}


def volcano_job(name: str, replicas: int = 2, gpus: int = 8) -> Object:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "phalanx",
            "minAvailable": replicas,
            "tasks": [{"name": "w", "replicas": replicas, "template": _template(gpus)}],
        },
    }


def suspended_job(name: str, pods: int = 2) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"phalanx.dev/queue": "default"}},
        "spec": {
            "suspend": True,
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "template": _template(),
        },
    }


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait up to an hour of the clock; look rarely, since most of it passes without an event."""
    for _ in range(720):
        if await holds():
            return
        await asyncio.sleep(5)
    raise AssertionError(f"waited in vain: {what}")


async def pods_of(world: World, prefix: str) -> list[Object]:
    return [each for each in await world.list(PODS) if each["metadata"]["name"].startswith(f"{prefix}-")]


async def bound(world: World, prefix: str, count: int) -> bool:
    return sum(bool(each["spec"].get("nodeName")) for each in await pods_of(world, prefix)) == count


@pytest.mark.parametrize("make", [volcano_job, suspended_job], ids=["Volcano Job", "suspended Job"])
async def test_empty_pool_grows_to_exactly_the_nodes_of_the_gang(world: World, make: Any) -> None:
    async with autoscaled(world, largest=5) as autoscaler:
        await world.make(make("train"))
        await until(lambda: bound(world, "train", 2), "the gang runs")
        assert (len(autoscaler.nodes), autoscaler.peak) == (2, 2)


@pytest.mark.parametrize("make", [volcano_job, suspended_job], ids=["Volcano Job", "suspended Job"])
async def test_pool_with_a_maximum_that_is_too_small_goes_back_to_zero(world: World, make: Any) -> None:
    async with autoscaled(world, largest=1) as autoscaler:
        await world.make(make("train"))
        await until(lambda: _grown(autoscaler), "the pool grows")

        async def over() -> bool:
            return not autoscaler.nodes and not await pods_of(world, "train")

        await until(over, "the pods are deleted and the pool is empty")
        assert autoscaler.peak == 1


async def _grown(autoscaler: Autoscaler) -> bool:
    return autoscaler.peak > 0


async def test_gang_that_no_node_of_the_pool_fits_has_its_turn_and_then_the_next_one(world: World) -> None:
    async with autoscaled(world, largest=5) as autoscaler:
        await world.make(volcano_job("large", gpus=16))
        held = await world.until_held("large-w-0", "large-w-1", words="waiting for nodes: 2 × 16 nvidia.com/gpu")
        assert held["reason"] == "Unschedulable"
        await world.make(volcano_job("small"))
        await until(lambda: bound(world, "small", 2), "the second gang runs")
        assert await pods_of(world, "large") == []
        assert autoscaler.peak == 2
        group = next(each for each in await world.list(GROUPS) if each["metadata"]["name"].startswith("large-"))
        assert group["status"]["phase"] == "Pending"
        assert "1 request for nodes ended without a node" in condition(group, "Unschedulable")["message"]


async def test_restart_of_the_scheduler_does_not_begin_the_wait_again(world: World, tmp_path: Path) -> None:
    await world.make(volcano_job("train"))
    await world.until_held("train-w-0", "train-w-1", words="waiting for nodes")
    await asyncio.sleep(600)
    await world.schedulers.pop().kill()
    await world.scheduler(config=str(tmp_path / "policy.yaml"))
    await world.until_held("train-w-0", "train-w-1", words="waiting for nodes")
    await asyncio.sleep(400)
    assert await pods_of(world, "train") == []


async def test_pods_of_an_operator_that_exist_already_stay_and_are_hidden_from_the_autoscaler(world: World) -> None:
    for name in ("g-0", "g-1"):
        annotations = {"scheduling.k8s.io/group-name": "g"}
        await world.pod(name, requests={"cpu": "1", GPU: "8"}, annotations=annotations)
    await asyncio.sleep(2)
    spec = {"minMember": 2, "minResources": {"cpu": "2", GPU: "16"}}
    await world.make(
        {"apiVersion": GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}
    )
    await world.until_held("g-0", "g-1", words="waiting for nodes: 2 × 8 nvidia.com/gpu")
    await asyncio.sleep(930)
    assert [_is_unschedulable(each) for each in await pods_of(world, "g")] == [False, False]


async def test_scheduler_deletes_the_pods_of_a_controller_that_does_not(world: World) -> None:
    spec = {"minMember": 2, "minResources": {"cpu": "2", GPU: "16"}}
    await world.make(
        {"apiVersion": GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}
    )
    await world.until_status(GROUPS, "g", phase="Inqueue")
    await asyncio.sleep(1)
    for name in ("g-0", "g-1"):
        annotations = {"scheduling.k8s.io/group-name": "g"}
        await world.pod(name, requests={"cpu": "1", GPU: "8"}, annotations=annotations)
    await world.until_held("g-0", "g-1", words="waiting for nodes: 2 × 8 nvidia.com/gpu")
    await asyncio.sleep(895)
    await world.until_status(GROUPS, "g", phase="Pending")
    await asyncio.sleep(15)
    assert await pods_of(world, "g") == []
