"""Preemption and reclaim over the API: gangs are evicted whole, loans are reclaimed, the room is reserved."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.processes import command
from tests.e2e.world import PODS, Object, World, condition

from .test_accounts import GROUP, QUEUE, QUEUE_NAME, QUOTA, made

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

MEMBER_OF = "scheduling.k8s.io/group-name"


async def pods(world: World) -> dict[str, Object]:
    return {item["metadata"]["name"]: item for item in await world.list(PODS)}


async def leaving(world: World) -> set[str]:
    return {name for name, item in (await pods(world)).items() if item["metadata"].get("deletionTimestamp")}


async def priority(world: World, value: int) -> str:
    name = f"{world.name}-{value}"
    document = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    await world.make({**document, "value": value})
    return name


async def gang(world: World, name: str, members: int, minimum: int | None = None, **what: Any) -> list[str]:
    """A Volcano PodGroup and its pods, each of the size of a node."""
    queue = what.pop("queue", "default")
    await world.make(made(GROUP, name, minMember=minimum or members, queue=queue))
    names = [f"{name}-{number}" for number in range(members)]
    await world.pods(*names, annotations={MEMBER_OF: name}, **{"cpu": "4", **what})
    return names


async def running(world: World, names: list[str]) -> None:
    await world.until_bound(*names)
    await world.phase("Running", *names)


async def test_gang_preempts_one_whole_gang_and_no_other_pods(world: World) -> None:
    for number in range(4):
        await world.node(f"n{number}", cpu="4")
    scheduler = await world.scheduler()
    one = await gang(world, "one", 2, terminationGracePeriodSeconds=30)
    other = await gang(world, "other", 2, terminationGracePeriodSeconds=30)
    await running(world, one + other)
    high = await gang(world, "high", 2, priorityClassName=await priority(world, 1000))

    async def told() -> set[str]:
        found = await leaving(world)
        return found if len(found) == 2 else set()

    victims = await world.until(told, "two pods leave")
    assert victims in ({*one}, {*other})
    # A thief that would fit in the room that comes free does not get it, before or after.
    await world.pods("thief-0", "thief-1", cpu="4")
    await world.settled(scheduler)
    assert await leaving(world) == victims
    held = {name: item["status"].get("nominatedNodeName") for name, item in (await pods(world)).items()}
    assert all(held[name] for name in high)
    assert not any(held[name] for name in ("thief-0", "thief-1"))
    await world.delete(PODS, *victims)
    await running(world, high)
    assert {name: (await world.placement())[name] for name in ("thief-0", "thief-1")} == {
        "thief-0": "",
        "thief-1": "",
    }
    await world.settled(scheduler)
    await world.until_event("Preempted", words="gang .*/high")


async def test_surplus_members_are_evicted_first(world: World) -> None:
    for number in range(3):
        await world.node(f"n{number}", cpu="4")
    await world.scheduler()
    elastic = await gang(world, "elastic", 3, minimum=2)
    await running(world, elastic)
    high = await gang(world, "high", 1, priorityClassName=await priority(world, 10))
    await running(world, high)
    placement = await world.placement()
    assert len([name for name in elastic if placement.get(name)]) == 2


async def test_quota_comes_back_across_nodes(world: World) -> None:
    """Two nodes with a pod of one CPU on each, and a pod of two CPUs within its min (KEP-9, known limitations)."""
    await world.node("n0", cpu="2")
    await world.node("n1", cpu="2")
    await world.scheduler()
    await world.make(made(QUOTA, "q1", min={"cpu": 0}, max={"cpu": 2}))
    await world.open(f"{world.name}-owner")
    await world.make(made(QUOTA, "q2", min={"cpu": 2}, max={"cpu": 2}))
    world.namespace = world.name
    await world.pods("one", "two")
    await running(world, ["one", "two"])
    world.namespace = f"{world.name}-owner"
    await world.pod("large", cpu="2")
    await world.until_bound("large")
    world.namespace = world.name
    assert set(await pods(world)) == set()


async def test_group_that_waits_for_admission_reclaims_the_deserved_share_of_its_queue(world: World) -> None:
    for number in range(2):
        await world.node(f"n{number}", cpu="4")
    await world.scheduler()
    borrower, owner = f"{world.name}-borrower", f"{world.name}-owner"
    await world.make(made(QUEUE, borrower, weight=1, reclaimable=True))
    await world.make(made(QUEUE, owner, weight=1))
    names = [f"b-{number}" for number in range(8)]
    await world.pods(*names, annotations={QUEUE_NAME: borrower})
    await running(world, names)
    await world.make(made(GROUP, "mine", minMember=2, queue=owner, minResources={"cpu": "4"}))
    await world.patch(GROUP, "mine", {"status": {"phase": "Pending"}}, status=True)
    await world.until_status(GROUP, "mine", phase="Inqueue")
    await world.pods("m-0", "m-1", cpu="2", annotations={MEMBER_OF: "mine"})
    await world.until_bound("m-0", "m-1")
    left = [name for name in await pods(world) if name.startswith("b-")]
    assert len(left) == 4


async def test_protected_gang_is_not_evicted_and_the_reason_is_reported(world: World) -> None:
    await world.node("n0", cpu="4")
    scheduler = await world.scheduler()
    await world.pod("safe", cpu="4", annotations={"volcano.sh/preemptable": "false"})
    await running(world, ["safe"])
    await world.pod("high", cpu="4", priorityClassName=await priority(world, 10))
    await world.settled(scheduler)
    found = await pods(world)
    assert not found["safe"]["metadata"].get("deletionTimestamp")
    assert condition(found["high"], "PodScheduled")["status"] == "False"


async def test_restarts_evict_no_further_pods_during_a_long_grace_period(world: World) -> None:
    for number in range(6):
        await world.node(f"n{number}", cpu="4")
    scheduler = await world.scheduler()
    low = [f"low-{number}" for number in range(6)]
    await world.pods(*low, cpu="4", terminationGracePeriodSeconds=3600)
    await running(world, low)
    high = await gang(world, "high", 2, priorityClassName=await priority(world, 1000))

    async def told() -> set[str]:
        found = await leaving(world)
        return found if len(found) == 2 else set()

    victims = await world.until(told, "two pods leave")
    await world.until_held(*high, words="waits for 2 evicted pods to terminate")
    for stop in (scheduler.kill, None):
        await (stop or scheduler.stop)()
        scheduler = await world.scheduler()
        await world.settled(scheduler, quiet=1.0)
        assert await leaving(world) == victims
        code, output = await command(
            "why", "podgroup/high", "-n", world.namespace, "--kubeconfig", kubeconfig(world)
        )
        assert code == 0, output
        assert "terminating; the last grace period" in output, output
        assert "would be evicted" not in output
    await world.delete(PODS, *victims)
    await world.until_bound(*high)
    assert await leaving(world) == set()


def kubeconfig(world: World) -> str:
    return str(world.cluster.kubeconfig)
