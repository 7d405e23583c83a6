"""A scheduler that dies at the worst moment and starts again: the end is the same as if nothing had happened."""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import Any

import pytest

from phalanx.kube.paths import Resource
from tests.e2e.world import NODES, PODS, Object, Running, World, condition

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

GROUPS = Resource("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup")
POLICIES = ["only-waiting", "waiting-and-running", "waiting-running-succeed", "once-satisfied"]
NAMES = [f"w-{number}" for number in range(4)]
BINDING = "/binding$"


def gang(policy: str, name: str = "g", size: int = 4) -> dict[str, dict[str, str]]:
    prefix = "pod-group.scheduling.sigs.k8s.io"
    return {
        "labels": {
            f"{prefix}/name": name,
            f"{prefix}/min-available": str(size),
            f"{prefix}/match-policy": policy,
        }
    }


async def bound_now(world: World) -> int:
    return sum(bool(node) for node in (await world.placement()).values())


# The first pairing covers each policy and each crash before and after a binding; the other pairings follow.
DEATHS = sorted(
    itertools.product(POLICIES, [1, 2, 3, 4], [False, True]),
    key=lambda each: (POLICIES.index(each[0]) + each[1] + 2 * each[2]) % 4 != 0,
)


def death(value: object) -> str:
    return ("before it is sent", "before it is answered")[value] if isinstance(value, bool) else str(value)


@pytest.mark.slow_but_first(8)
@pytest.mark.parametrize(("policy", "nth", "after"), DEATHS, ids=death)
async def test_killed_at_any_binding_of_a_gang(world: World, policy: str, nth: int, after: bool) -> None:
    """Room is scarce and another gang waits for it: the begun gang is finished first."""
    await world.node("n1", cpu="4")
    await world.pods(*NAMES, **gang(policy))
    first = await world.scheduler(wait=False, concurrency=1)
    first.wire.die("POST", BINDING, nth=nth, after=after)
    await first.wire.dead.wait()
    await first.kill()
    assert await bound_now(world) == nth - (0 if after else 1)
    begun = nth > 1 or after
    if begun:
        await world.pods("rival-0", "rival-1", **gang("once-satisfied", "rival", 2))
    await world.scheduler()
    placement = await world.until_bound(*NAMES)
    assert not placement.get("rival-0")
    assert not placement.get("rival-1")


@pytest.mark.parametrize("policy", ["only-waiting", "once-satisfied"])
async def test_killed_again_and_again(world: World, policy: str) -> None:
    """One binding in each life."""
    await world.node("n1", cpu="4")
    await world.pods(*NAMES, **gang(policy))
    for life in range(1, 5):
        scheduler = await world.scheduler(wait=False, concurrency=1)
        scheduler.wire.die("POST", BINDING, after=True)
        await scheduler.wire.dead.wait()
        await scheduler.kill()
        assert await bound_now(world) == life
    await world.until_bound(*NAMES)


async def test_killed_with_all_bindings_under_way(world: World) -> None:
    await world.node("n1", cpu="4")
    await world.pods(*NAMES, **gang("only-waiting"))
    first = await world.scheduler(wait=False)
    first.wire.die("POST", BINDING, nth=3)
    await first.wire.dead.wait()
    await first.kill()
    await world.scheduler()
    await world.until_bound(*NAMES)


async def test_a_begun_gang_that_lost_its_room_waits_and_says_so(world: World) -> None:
    """Two members are bound when the scheduler dies, and the other node is lost at the same time: the gang
    waits with a reason.
    """
    await world.node("n1", cpu="2")
    await world.node("n2", cpu="2")
    await world.pods(*NAMES, **gang("only-waiting"))
    first = await world.scheduler(wait=False, concurrency=1)
    first.wire.die("POST", BINDING, nth=3)
    await first.wire.dead.wait()
    await first.kill()
    placement = await world.placement()
    used = {node for node in placement.values() if node}
    spare = next(node for node in ("n1", "n2") if node not in used or len(used) == 2)
    waiting = [name for name, node in placement.items() if not node]
    await world.client.delete(NODES.path(None, f"{world.name}-{spare}"))
    await world.scheduler()
    await world.until_held(*waiting, words="Insufficient cpu|fit")
    await world.node("n3", cpu="2")
    await world.until_bound(*waiting)


async def snapshot(world: World) -> dict[str, Any]:
    """All that a user can see, times aside."""
    pods = {
        item["metadata"]["name"]: (
            bool(item["spec"].get("nodeName")),
            condition(item, "PodScheduled").get("status"),
            condition(item, "PodScheduled").get("reason"),
            condition(item, "PodScheduled").get("message"),
        )
        for item in await world.list(PODS)
    }
    group: Object = await world.get(GROUPS, "g")
    status = {key: value for key, value in (group.get("status") or {}).items() if key != "scheduleStartTime"}
    return {"pods": pods, "status": status, "annotations": group["metadata"].get("annotations")}


async def submit(world: World) -> None:
    """A gang that fits, one that does not, and a pod above the minimum that does not either."""
    await world.node("n1", cpu="3")
    document = {"apiVersion": GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": "g"}}
    await world.make({**document, "spec": {"minMember": 3}})
    await world.pods("a", "b", "c", "d", labels={"pod-group.scheduling.sigs.k8s.io": "g"})
    await world.pods("x", "y", **gang("only-waiting", "x", 2))


async def until_the_end(world: World) -> None:
    await world.until_bound("a", "b", "c")
    await world.until_status(GROUPS, "g", phase="Scheduled", scheduled=3)

    async def told() -> bool:
        pods = {item["metadata"]["name"]: item for item in await world.list(PODS)}
        return all("Insufficient cpu" in condition(pods[name], "PodScheduled").get("message", "") for name in "dxy")

    await world.until(told, "who waits knows why")


@pytest.mark.slow
async def test_scheduler_killed_at_any_write_reaches_the_same_end_state(world: World) -> None:
    """Every write in turn: bindings, conditions, statuses, events; each before it is sent and after."""
    ends: list[tuple[str, dict[str, Any]]] = []
    reached, nth = True, 0
    while reached:
        nth += 1
        for after in (False, True):
            await world.open(f"{world.name}-{nth}-{'a' if after else 'b'}")
            await submit(world)
            first = await world.scheduler(wait=False, concurrency=1)
            first.wire.die("*", "", nth=nth, after=after)
            await under_way(first)
            await world.settled(first, quiet=0.6)
            reached = first.wire.dead.is_set()
            await first.kill()
            second = await world.scheduler()
            await until_the_end(world)
            ends.append((f"write {nth}{' answered' if after else ''}", await snapshot(world)))
            await second.kill()
            for name in ("a", "b", "c", "d", "x", "y"):
                await world.delete(PODS, name)
            await world.client.delete(NODES.path(None, f"{world.name}-n1"))
    assert nth > 8
    differing = [name for name, end in ends if strip(end) != strip(ends[-1][1])]
    assert not differing


async def under_way(scheduler: Running) -> None:
    """Returns when the scheduler has begun to schedule, however slow the machine is, or has died on the way."""
    tasks = [asyncio.create_task(scheduler.ready()), asyncio.create_task(scheduler.wire.dead.wait())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def strip(end: dict[str, Any]) -> str:
    """Texts name the namespace, which differs from try to try."""
    return re.sub(r"e2e[-0-9a-z]*", "ns", repr(end))
