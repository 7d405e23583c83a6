"""Lost answers, refusals, cut watches, expired history: the scheduler continues as soon as it can."""

from __future__ import annotations

import asyncio

import pytest

from phalanx.kube.paths import Resource
from tests.e2e.world import EVENTS, PODS, Running, World, condition

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
BINDING = "/binding$"
NAMES = ["a", "b", "c", "d"]
GANG = {"pod-group/name": "g", "pod-group/min-available": "4"}


def bindings(scheduler: Running) -> int:
    return scheduler.wire.count(lambda write: write.endswith("/binding"))


async def waiting_gang(world: World) -> Running:
    """A gang that waits for a node, and its scheduler."""
    scheduler = await world.scheduler()
    await world.pods(*NAMES, labels=GANG)
    await world.until_held(*NAMES)
    return scheduler


@pytest.mark.slow_but_first
@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
async def test_answers_to_bindings_that_are_lost(world: World, after: bool, times: int) -> None:
    scheduler = await waiting_gang(world)
    scheduler.wire.lose("POST", BINDING, times=times, after=after)
    await world.node("n1")
    await world.until_bound(*NAMES)
    await world.settled(scheduler, quiet=0.4)
    # The scheduler looks before it repeats: no request that took effect is posted twice.
    assert bindings(scheduler) == 4
    assert condition(await world.get(PODS, "a"), "PodScheduled")["status"] == "True"


async def test_questions_about_a_lost_answer_are_repeated(world: World) -> None:
    scheduler = await waiting_gang(world)
    scheduler.wire.lose("POST", BINDING, times=4, after=True)
    scheduler.wire.lose("GET", "/pods/[a-d]$", times=6)
    await world.node("n1")
    await world.until_bound(*NAMES)
    await world.settled(scheduler, quiet=0.4)
    assert bindings(scheduler) == 4


@pytest.mark.parametrize(("code", "times"), [(409, 1), (409, 12), (429, 3), (500, 3), (503, 12), (403, 8)])
async def test_refusals_that_pass(world: World, embedded: None, code: int, times: int) -> None:
    await waiting_gang(world)
    world.server.faults.answer("POST", BINDING, code, times=times, retry_after=1 if code == 429 else None)
    await world.node("n1")
    await world.until_bound(*NAMES)
    world.server.faults.clear()


@pytest.mark.slow
async def test_pod_that_is_always_refused_does_not_delay_other_pods(world: World, embedded: None) -> None:
    scheduler = await world.scheduler(concurrency=2)
    await world.pods("bad-0", "bad-1", labels={"pod-group/name": "bad", "pod-group/min-available": "2"})
    await world.until_held("bad-0", "bad-1")
    world.server.faults.answer("POST", "/pods/bad-.*/binding$", 500, times=10_000)
    await world.node("n1")
    await world.pods(*NAMES, labels=GANG)
    await world.until_bound(*NAMES)
    await world.until_held("bad-0", "bad-1", reason="SchedulerError", words="500 InternalError: injected fault")
    await world.until_event("FailedScheduling", "bad-0", "binding to node .* failed")
    world.server.faults.clear()
    await world.until_bound("bad-0", "bad-1")
    await world.settled(scheduler, quiet=0.4)


@pytest.mark.slow
async def test_a_webhook_that_refuses_one_member_leaves_a_trace_and_is_survived(
    world: World, embedded: None
) -> None:
    """Three of four members are bound; the fourth is retried until it succeeds, and its room stays reserved."""
    await waiting_gang(world)
    world.server.faults.answer("POST", "/pods/c/binding$", 403, times=3, message="denied by policy")
    await world.node("n1", cpu="4")
    await world.until_bound("a", "b", "d")
    await world.pods("rival", labels={"pod-group/name": "rival", "pod-group/min-available": "1"})
    await world.until_bound(*NAMES)
    await world.until_held("rival")
    await world.until_event("FailedScheduling", "c", "denied by policy")


@pytest.mark.parametrize("expired", [False, True], ids=["cut", "cut and forgotten"])
async def test_watches_that_are_cut_in_the_middle_of_a_gang(world: World, embedded: None, expired: bool) -> None:
    await world.node("n1")
    await world.scheduler()
    for name in NAMES:
        await world.pod(name, labels=GANG)
        if expired:
            world.server.faults.expire_history()
        world.server.faults.cut_watches("", expired=expired)
    await world.until_bound(*NAMES)


@pytest.mark.slow
async def test_a_list_that_fails_now_and_then(world: World, embedded: None) -> None:
    await world.node("n1")
    await world.pods(*NAMES, labels=GANG)
    world.server.faults.answer("GET", r"/api/v1/(pods|nodes)$", 500, times=4)
    world.server.faults.drop("GET", r"/apis/.*/podgroups$", times=4)
    await world.scheduler()
    await world.until_bound(*NAMES)


async def test_deletions_missed_by_a_cut_watch_are_found_by_the_next_list(world: World, embedded: None) -> None:
    """While the watch is down a pod is deleted and frees its room; the next list shows it."""
    await world.node("n1", cpu="4")
    await world.scheduler()
    await world.pod("old", cpu="4")
    await world.until_bound("old")
    await world.pods(*NAMES, labels=GANG)
    await world.until_held(*NAMES)
    world.server.faults.answer("GET", r"/api/v1/pods$", 503)
    world.server.faults.expire_history()
    world.server.faults.cut_watches("/pods$", expired=True)
    await world.delete(PODS, "old")
    await world.until_bound(*NAMES)


async def test_nothing_is_planned_on_stale_knowledge(world: World, embedded: None) -> None:
    """Pods are watched, nodes are not: the scheduler does not bind on outdated nodes."""
    scheduler = await world.scheduler()
    await world.node("n1")
    await world.pods("a", "b", labels={"pod-group/name": "g", "pod-group/min-available": "3"})
    await world.until_held("a", "b")
    world.server.faults.answer("GET", r"/api/v1/nodes$", 503, times=10_000)
    world.server.faults.cut_watches("/nodes$")
    await asyncio.sleep(0.2)
    await world.pod("c", labels={"pod-group/name": "g", "pod-group/min-available": "3"})
    await asyncio.sleep(0.5)
    assert bindings(scheduler) == 0
    world.server.faults.clear()
    await world.until_bound("a", "b", "c")


@pytest.mark.parametrize("code", [409, 429, 500, 503])
async def test_conditions_and_statuses_that_are_refused_are_written_later(
    world: World, embedded: None, code: int
) -> None:
    world.server.faults.answer("PATCH", "/status$", code, times=3)
    await world.scheduler()
    document = {"apiVersion": GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": "g"}}
    await world.make({**document, "spec": {"minMember": 2}})
    await world.pods("a", "b", labels={"scheduling.x-k8s.io/pod-group": "g"})
    await world.until_held("a", "b")
    await world.until_status(GROUPS, "g", phase="Scheduling")


async def test_events_that_are_refused_hold_nothing_up(world: World, embedded: None) -> None:
    world.server.faults.answer("POST", "/events$", 403, times=10_000, message="no events today")
    await world.node("n1")
    await world.scheduler()
    await world.pods(*NAMES, labels=GANG)
    await world.until_bound(*NAMES)
    assert await world.list(EVENTS) == []


async def test_once_everything_is_settled_nothing_is_written(world: World) -> None:
    """Running, waiting, gated, half-declared, foreign: all statuses and conditions are already published."""
    await world.node("n1", cpu="6")
    scheduler = await world.scheduler()
    document = {"apiVersion": GROUPS.api_version, "kind": "PodGroup"}
    for name, minimum in (("runs", 2), ("waits", 2), ("lacks", 3)):
        await world.make({**document, "metadata": {"name": name}, "spec": {"minMember": minimum}})
        labels = {"scheduling.x-k8s.io/pod-group": name}
        await world.pods(f"{name}-0", f"{name}-1", labels=labels, cpu="4" if name == "waits" else "1")
    await world.pods("lone-0", "lone-1", cpu="4")
    await world.pod("gated", schedulingGates=[{"name": "example.com/hold"}])
    await world.pod("theirs", scheduler="default-scheduler")
    await world.pods("orphan", labels={"scheduling.x-k8s.io/pod-group": "nobody"})
    await world.until_bound("runs-0", "runs-1", "lone-0")
    await world.phase("Running", "runs-0", "runs-1", "lone-0")
    await world.until_held("waits-0", "waits-1", "lacks-0", "lacks-1", "lone-1", "orphan")
    await world.settled(scheduler, quiet=1.0)
    before = scheduler.wire.count()
    for beat in range(10):
        # Heartbeats, labels and foreign pods change in every cluster all the time.
        await world.patch_node("n1", {"metadata": {"annotations": {"beat": str(beat)}}})
        await world.patch(PODS, "theirs", {"metadata": {"annotations": {"beat": str(beat)}}})
        await world.patch(PODS, "waits-0", {"metadata": {"annotations": {"beat": str(beat)}}})
        await asyncio.sleep(0.1)
    assert scheduler.wire.writes[before:] == []


async def test_a_restart_in_a_settled_cluster_writes_no_condition_and_no_status(world: World) -> None:
    await world.node("n1", cpu="1")
    first = await world.scheduler()
    document = {"apiVersion": GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": "g"}}
    await world.make({**document, "spec": {"minMember": 2}})
    await world.pods("a", "b", labels={"scheduling.x-k8s.io/pod-group": "g"})
    await world.pod("lone", cpu="2")
    await world.until_held("a", "b", "lone")
    await world.settled(first, quiet=0.5)
    await first.stop()
    second = await world.scheduler()
    await world.settled(second, quiet=0.7)
    assert [write for write in second.wire.writes if "/events" not in write] == []
