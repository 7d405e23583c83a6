"""Two stages on an API server: drivers start with room for their executors, which a restart does not give away."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.gangs.held_room import HELD_ROOM
from tests.e2e.test_preemption import priority
from tests.e2e.world import PODS, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


def app(name: str, executors: int = 0, timeout: str = "5m") -> dict[str, Any]:
    """Return the labels of an app's pods, and the number of executors that its driver expects."""
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": name,
        "pod-group.scheduling.sigs.k8s.io/min-available": "1",
        "spark-role": "driver" if executors else "executor",
    }
    said = {
        "phalanx.dev/expected-members": str(executors),
        "phalanx.dev/expected-requests": '{"cpu": "1"}',
        "phalanx.dev/expected-timeout": timeout,
    }
    return {"labels": labels, "annotations": said if executors else {}}


async def test_drivers_start_only_with_room_for_their_executors(world: World) -> None:
    await world.node("n1", cpu="4")
    scheduler = await world.scheduler()
    await world.pod("a-driver", **app("a", 2))
    await world.until_bound("a-driver")
    await world.pod("b-driver", **app("b", 2))
    await world.until_held("b-driver", words="2 pods created once it runs")
    await world.pods("a-exec-1", "a-exec-2", **app("a"))
    await world.until_bound("a-exec-1", "a-exec-2")
    assert not (await world.placement())["b-driver"]
    assert not [write for write in scheduler.wire.writes if "expected" in write]
    await world.delete(PODS, "a-driver", "a-exec-1", "a-exec-2")
    await world.until_bound("b-driver")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("after", [False, True], ids=["before it is sent", "before it is answered"])
async def test_killed_at_the_binding_of_a_driver(world: World, after: bool) -> None:
    await world.node("n1", cpu="3")
    await world.pod("driver", **app("a", 2))
    first = await world.scheduler(wait=False)
    first.wire.die("POST", "/binding$", after=after)
    await first.wire.dead.wait()
    await first.kill()
    await world.scheduler()
    await world.until_bound("driver")
    await world.pod("other")
    await world.until_held("other")
    await world.pods("exec-1", "exec-2", **app("a"))
    await world.until_bound("exec-1", "exec-2")


async def test_room_is_held_through_a_restart(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.node("n2", cpu="1")
    first = await world.scheduler()
    await world.pod("driver", **app("a", 2))
    await world.until_bound("driver")
    assert HELD_ROOM in (await world.get(PODS, "driver"))["metadata"]["annotations"]
    await first.kill()
    await world.pods("other-1", "other-2")
    await world.scheduler()
    await world.until_held("other-1", "other-2")
    await world.pods("exec-1", "exec-2", **app("a"))
    await world.until_bound("exec-1", "exec-2")


async def test_room_is_held_through_a_restart_while_the_driver_waits_for_evicted_pods(world: World) -> None:
    await world.node("n1", cpu="3")
    first = await world.scheduler()
    await world.pod("victim", cpu="3", terminationGracePeriodSeconds=30)
    await world.until_bound("victim")
    await world.phase("Running", "victim")
    await world.pod("driver", **app("a", 2), priorityClassName=await priority(world, 1000))

    async def victim_leaves() -> bool:
        return bool((await world.get(PODS, "victim"))["metadata"].get("deletionTimestamp"))

    await world.until(victim_leaves, "the victim leaves")
    await world.settled(first)
    driver = await world.get(PODS, "driver")
    assert driver["status"]["nominatedNodeName"]
    assert HELD_ROOM in driver["metadata"]["annotations"]
    await first.kill()
    await world.pod("thief", cpu="2")
    second = await world.scheduler()
    await world.settled(second)
    assert not [write for write in second.wire.writes if "driver" in write]
    await world.delete(PODS, "victim")
    await world.until_bound("driver")
    await world.until_held("thief")
    await world.pods("exec-1", "exec-2", **app("a"))
    await world.until_bound("exec-1", "exec-2")


@pytest.mark.feature("placeholders")
async def test_room_for_expected_members_is_released_when_they_do_not_arrive_in_time(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.scheduler()
    await world.pod("driver", **app("a", 1, timeout="2s"))
    await world.until_bound("driver")
    await world.pod("other")
    await world.until_bound("other")
