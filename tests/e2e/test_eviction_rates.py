"""Eviction rates over a restart: a scheduler that is killed has not forgotten its evictions."""

from __future__ import annotations

import pytest

from phalanx.kube.paths import Resource
from tests.e2e.world import PODS, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

QUEUE = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
QUEUE_NAME = "scheduling.volcano.sh/queue-name"


async def test_killed_scheduler_evicts_no_more_pods_than_the_rate_allows(world: World) -> None:
    queue, low, high = (f"{world.name}-{name}" for name in ("team", "low", "high"))
    notes = {QUEUE_NAME: queue}
    await world.node("n1", cpu="2")
    await world.make(
        {
            "apiVersion": QUEUE.api_version,
            "kind": "Queue",
            "metadata": {"name": queue, "annotations": {"phalanx.dev/eviction-rate": "1/1h"}},
            "spec": {"weight": 1},
        }
    )
    for name, value in ((low, 1), (high, 1000)):
        await world.make(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
        )
    first = await world.scheduler(lease_namespace=world.namespace)
    await world.pods("a", "b", cpu="1", priorityClassName=low, annotations=notes)
    await world.until_bound("a", "b")
    await world.phase("Running", "a", "b")
    await world.pod("first", cpu="1", priorityClassName=high, annotations=notes)
    await world.until_bound("first")
    (left,) = [item["metadata"]["name"] for item in await world.list(PODS) if item["metadata"]["name"] in "ab"]
    await first.kill()
    second = await world.scheduler(lease_namespace=world.namespace)
    await world.pod("second", cpu="1", priorityClassName=high, annotations=notes)
    await world.until_held("second")
    await world.settled(second)
    assert {name: bool(node) for name, node in (await world.placement()).items()} == {
        left: True,
        "first": True,
        "second": False,
    }
    assert not (await world.get(PODS, left))["metadata"].get("deletionTimestamp")
