"""Borrowing above the deserved share over the API: the reclaim of a gang, and its back-off over a restart."""

from __future__ import annotations

import json

import pytest

from phalanx.kube.paths import Resource
from tests.e2e.world import PODS, Object, World

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.feature("borrowed-room"),
    pytest.mark.slow,
]

QUEUE = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
GROUP_NAME = "scheduling.k8s.io/group-name"


async def gang(world: World, name: str, queue: str, members: int, minimum: int) -> None:
    spec = {"minMember": minimum, "queue": queue}
    await world.make(
        {"apiVersion": GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    )
    names = [f"{name}-{number}" for number in range(members)]
    await world.pods(*names, cpu="2", annotations={GROUP_NAME: name})


async def reclaims(world: World) -> list[Object]:
    """Return the stored entries of reclaimed gangs."""
    for item in await world.list(CONFIG_MAPS):
        if item["metadata"]["name"] == "phalanx-reservations":
            gangs: list[Object] = json.loads(item["data"].get("reclaims.json", '{"gangs": []}'))["gangs"]
            return gangs
    return []


async def test_backoff_of_a_reclaimed_gang_outlives_the_process(world: World) -> None:
    """The gang `train` uses 6 of 10 CPUs; the incomplete gang `wide` of queue b requests the share of its queue."""
    a, b = f"{world.name}-a", f"{world.name}-b"
    for name in (a, b):
        await world.make({"apiVersion": QUEUE.api_version, "kind": "Queue", "metadata": {"name": name}, "spec": {}})
    await world.node("n1", cpu="10")
    first = await world.scheduler(lease_namespace=world.namespace)
    await gang(world, "wide", b, 4, 5)
    await gang(world, "train", a, 3, 3)
    await world.until_bound("train-0", "train-1", "train-2")
    await world.pods("own-0", "own-1", "own-2", "own-3", "own-4", cpu="1", annotations={QUEUE_NAME: b})
    await world.until_event("Reclaimed", "train-0")

    async def gone() -> bool:
        return not [name for name in await world.placement() if name.startswith("train")]

    await world.until(gone, "the pods of the gang are deleted")
    await world.pods("train-0", "train-1", "train-2", cpu="2", annotations={GROUP_NAME: "train"})
    await world.until_bound("own-4")
    (entry,) = await world.until(lambda: reclaims(world), "the reclaim is stored")
    assert entry["times"] == 1
    await world.delete(PODS, "own-0", "own-1", "own-2", "own-3", "own-4")

    async def idle() -> bool:
        return bool((await reclaims(world))[0].get("idle"))

    await world.until(idle, "the room is idle")
    await first.stop()
    second = await world.scheduler(lease_namespace=world.namespace)
    await world.settled(second, quiet=1.5)
    assert not [name for name, node in (await world.placement()).items() if name.startswith("train") and node]
    await second.stop()
    assert [write for write in second.wire.writes if "configmaps" in write] == []
