"""Queues and quotas over the API: their status counts their content and explains mistakes in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from phalanx.controllers.queue_states import QueueStates
from phalanx.controllers.service import ControllerOptions, ControllerService
from phalanx.kube.client import PatchType
from phalanx.kube.paths import Resource
from tests.e2e.world import DEFINITIONS, PODS, Cluster, Object, World

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("whosever_definitions"),
]

QUOTA = Resource("scheduling.x-k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
SIGS_QUOTA = Resource("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
QUOTA_TREE = Resource("scheduling.sigs.k8s.io", "v1beta1", "elasticquotatrees", "ElasticQuotaTree")
QUEUE = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
GROUP = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
QUEUE_NAME = "scheduling.volcano.sh/queue-name"


def made(resource: Resource, name: str, **spec: Any) -> Object:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.mark.slow_but_first
async def test_quota_status_lists_usage_and_is_not_rewritten_without_a_change(world: World) -> None:
    await world.node("n1")
    scheduler = await world.scheduler()
    await world.make(made(QUOTA, "quota", min={"cpu": 4, "nvidia.com/gpu": 0}, max={"cpu": 6}))
    await world.until_status(QUOTA, "quota", used={"cpu": "0", "nvidia.com/gpu": "0"})
    await world.pods("a", "b", cpu="1500m")
    await world.until_bound("a", "b")
    await world.phase("Running", "a", "b")
    await world.until_status(QUOTA, "quota", used={"cpu": "3", "nvidia.com/gpu": "0"})
    await world.until_event("Synced", "quota")
    await world.settled(scheduler, quiet=1.0)
    await world.delete(PODS, "a")
    await world.until_status(QUOTA, "quota", used={"cpu": "1500m", "nvidia.com/gpu": "0"})


@pytest_asyncio.fixture(loop_scope="session")
async def queue_controller(cluster: Cluster) -> AsyncIterator[None]:
    """Return whether a queue controller runs: where Commands are served, it publishes the state of queues."""
    service = ControllerService(cluster.client, ControllerOptions(), lambda context: (QueueStates(context),))
    running = asyncio.create_task(service.run())
    await service.ready.wait()
    yield
    service.stop()
    await running


@pytest.mark.slow_but_first
@pytest.mark.usefixtures("queue_controller")
async def test_queue_status_shows_state_group_counts_and_allocation(world: World) -> None:
    await world.node("n1")
    await world.scheduler()
    name = f"{world.name}-q"
    await world.make(made(QUEUE, name, weight=2))
    await world.until_status(QUEUE, name, state="Open")
    await world.make({**made(GROUP, "g", minMember=2, queue=name)})
    await world.pods("a", "b", annotations={"scheduling.k8s.io/group-name": "g"})
    await world.until_bound("a", "b")
    await world.phase("Running", "a", "b")
    await world.until_status(
        QUEUE, name, running=1, pending=0, inqueue=0, allocated={"cpu": "2", "memory": "0", "pods": "2"}
    )
    # A Command closes the queue: it accepts no more jobs, and is closed once it is empty.
    path = QUEUE.path(None, name) + "/status"
    await world.client.patch(path, {"status": {"state": "Closing"}}, PatchType.MERGE)
    await world.pod("late", annotations={QUEUE_NAME: name})
    await world.until_event("FailedScheduling", "late", f"Queue {name} is closing and accepts no new pods")
    await world.delete(PODS, "a", "b")
    await world.delete(GROUP, "g")
    await world.until_status(QUEUE, name, state="Closed", running=0)


@pytest.mark.usefixtures("queue_controller")
async def test_volcanos_own_queues_are_there(world: World) -> None:
    for name in ("default", "root"):
        await world.client.delete(QUEUE.path(None, name))
    await world.scheduler()
    for name in ("default", "root"):

        async def is_open(name: str = name) -> bool:
            items = {item["metadata"]["name"]: item for item in await world.list(QUEUE)}
            return bool(items.get(name, {}).get("status", {}).get("state") == "Open")

        await world.until(is_open, f"queue {name} is open")


async def test_mistake_in_a_quota_is_reported_in_its_status(world: World) -> None:
    await world.scheduler()
    await world.make(made(QUOTA, "first", min={"cpu": 5}, max={"cpu": 3}))
    await world.until_event("MinExceedsMax", "first", r"spec\.min\.cpu is 5")
    await asyncio.sleep(1.1)  # creation times are whole seconds
    await world.make(made(SIGS_QUOTA, "second", min={"cpu": 1}))
    await world.until_event("DuplicateInNamespace", "second", "first")
    await world.until_event("SumMinExceedsCapacity", "first", "cpu 3 of 0")


async def test_a_kind_that_comes_later_is_watched(world: World) -> None:
    await world.scheduler()
    path = DEFINITIONS.path(None, "elasticquotas.scheduling.sigs.k8s.io")
    definition = await world.client.get(path)
    await world.client.delete(path)
    try:

        async def gone() -> bool:
            return not [item for item in await world.list(DEFINITIONS) if item["metadata"]["name"] in path]

        await world.until(gone, "the definition is gone")
    finally:
        metadata = {key: definition["metadata"].get(key, {}) for key in ("name", "labels", "annotations")}
        await world.client.create(DEFINITIONS.path(), {**definition, "metadata": metadata, "status": {}})

    async def served() -> bool:
        definition = await world.client.get(path)
        conditions = definition.get("status", {}).get("conditions") or []
        return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)

    await world.until(served, "the definition is served")
    await world.make(made(SIGS_QUOTA, "quota", min={"cpu": 1}))
    await world.until_status(SIGS_QUOTA, "quota", used={"cpu": "0"})


def queue_of(namespace: str) -> Object:
    return made(QUEUE, f"{namespace}-queue", capability={"cpu": 2})


def elastic_quota_of(namespace: str) -> Object:
    return made(QUOTA, "quota", min={"cpu": 2}, max={"cpu": 2})


def koordinator_quota_of(namespace: str) -> Object:
    quota = made(SIGS_QUOTA, f"{namespace}-quota", min={"cpu": 1}, max={"cpu": 2})
    annotations = {"quota.scheduling.koordinator.sh/namespaces": f'["{namespace}"]'}
    return {**quota, "metadata": {**quota["metadata"], "annotations": annotations}}


def quota_tree_of(namespace: str) -> Object:
    leaf = {"name": "leaf", "max": {"cpu": 2}, "namespaces": [namespace]}
    tree = made(QUOTA_TREE, f"{namespace}-tree", root={"name": "root", "children": [leaf]})
    return {**tree, "metadata": {**tree["metadata"], "namespace": "kube-system"}}


@pytest.mark.parametrize("limit", [queue_of, elastic_quota_of, koordinator_quota_of, quota_tree_of])
async def test_the_limit_of_every_family_holds(world: World, limit: Callable[[str], Object]) -> None:
    await world.node("n1")
    await world.make(limit(world.namespace))
    await world.scheduler()
    queue = {QUEUE_NAME: f"{world.namespace}-queue"} if limit is queue_of else {}
    await world.pods("a", "b", "c", annotations=queue)

    async def two_are_bound() -> bool:
        return sum(map(bool, (await world.placement()).values())) == 2

    await world.until(two_are_bound, "two of three pods are bound")
    await asyncio.sleep(0.5)
    placement = await world.placement()
    (waits,) = [name for name, node in placement.items() if not node]
    await world.until_event("FailedScheduling", waits, "cpu")
    await world.delete(PODS, *sorted(placement.keys() - {waits})[:1])
    await world.until_bound(waits)
