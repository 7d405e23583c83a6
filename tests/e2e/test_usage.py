"""Usage of accounts over the API: a spent budget stays spent over a restart, and then nothing is written."""

from __future__ import annotations

import asyncio

import pytest

from phalanx.kube.paths import Resource
from tests.e2e.world import PODS, Object, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

QUEUE = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
QUEUE_NAME = "scheduling.volcano.sh/queue-name"


def queue(name: str, budget: str) -> Object:
    metadata = {"name": name, "annotations": {"phalanx.dev/budget": budget}}
    return {"apiVersion": QUEUE.api_version, "kind": "Queue", "metadata": metadata, "spec": {"weight": 1}}


@pytest.mark.feature("past-use")
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
async def test_a_spent_budget_stays_spent_over_a_restart(world: World, killed: bool) -> None:
    name = f"{world.name}-team"
    await world.node("n1")
    # 3.6 core-seconds in about three years.
    await world.make(queue(name, '{"window": "24000h", "hours": {"cpu": "1m"}}'))
    first = await world.scheduler(lease_namespace=world.namespace)
    await world.pod("burner", cpu="8", annotations={QUEUE_NAME: name})
    await world.until_bound("burner")
    await asyncio.sleep(1)
    await world.delete(PODS, "burner")
    await world.pod("late", annotations={QUEUE_NAME: name})
    await world.until_event("FailedScheduling", "late", "of its budget for")
    await (first.kill() if killed else first.stop())
    (stored,) = [item for item in await world.list(CONFIG_MAPS) if item["metadata"]["name"] == "phalanx-usage-0"]
    assert name in stored["data"]["usage.json"]
    second = await world.scheduler(lease_namespace=world.namespace)
    await world.pod("later", annotations={QUEUE_NAME: name})
    await world.until_event("FailedScheduling", "later", "of its budget for")
    await world.settled(second, quiet=0.5)
    await second.stop()
    assert [write for write in second.wire.writes if "configmaps" in write] == []


async def test_without_budgets_or_a_past_no_memory_is_kept(world: World) -> None:
    await world.node("n1")
    scheduler = await world.scheduler(lease_namespace=world.namespace)
    await world.pod("a")
    await world.until_bound("a")
    await scheduler.stop()
    names = [item["metadata"]["name"] for item in await world.list(CONFIG_MAPS)]
    assert [name for name in names if name.startswith("phalanx")] == ["phalanx-policies-in-force"]
