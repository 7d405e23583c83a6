"""A scheduler that dies during evictions: the preemptor gets its room, and no pod is evicted without need."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from phalanx.daemon.controllers import leftover_evictions
from phalanx.scheduling.policy.loader import DEFAULT_POLICY
from tests.e2e.world import PODS, Object, World, condition

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

GANG = ("t-0", "t-1")
LOW = ("a", "b", "c", "d")
MINIMUM = "pod-group.scheduling.sigs.k8s.io/min-available"


def gang(size: int = 2) -> dict[str, dict[str, str]]:
    prefix = "pod-group.scheduling.sigs.k8s.io"
    return {
        "labels": {f"{prefix}/name": "train", f"{prefix}/min-available": str(size)},
        "annotations": {f"{prefix}/match-policy": "waiting-and-running"},
    }


async def submit(world: World) -> None:
    """A node full of pods of low priority, and a gang of two with a high one."""
    await world.node("n1", cpu="4")
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": world.name}}
    await world.make({**high, "value": 1000})
    for name in LOW:
        await world.pod(name, nodeName=f"{world.name}-n1", terminationGracePeriodSeconds=30)
    await world.phase("Running", *LOW)
    await world.pods(*GANG, priorityClassName=world.name, **gang())


async def pods(world: World) -> dict[str, Object]:
    return {item["metadata"]["name"]: item for item in await world.list(PODS)}


async def leaving(world: World) -> set[str]:
    found = await pods(world)
    return {name for name, item in found.items() if item["metadata"].get("deletionTimestamp")}


async def let_them_leave(world: World, evicted: set[str]) -> None:
    """Play the kubelet until the gang is bound, and record the evicted pods."""
    while True:
        for name in await leaving(world):
            evicted.add(name)
            await world.delete(PODS, name)
        placement = await world.placement()
        if all(placement[name] for name in GANG):
            return
        await asyncio.sleep(0.02)


async def finish(world: World) -> set[str]:
    """Return the evicted pods once the gang has its room."""
    evicted: set[str] = set()
    async with asyncio.timeout(60):
        await let_them_leave(world, evicted)
    return evicted


async def test_promise_is_recorded_before_the_first_eviction(world: World) -> None:
    await submit(world)
    scheduler = await world.scheduler()

    async def two_leave() -> bool:
        return len(await leaving(world)) == 2

    await world.until(two_leave, "two are told to leave")
    found = await pods(world)
    assert [found[name]["status"].get("nominatedNodeName") for name in GANG] == [f"{world.name}-n1"] * 2
    for name in await leaving(world):
        told = condition(found[name], "DisruptionTarget")
        assert (told["status"], told["reason"]) == ("True", "PreemptionByScheduler")
        assert told["message"].startswith("phalanx: ")
    await world.until_event("Preempted", words="gang .*/train")
    first = [write.rpartition("/ns/")[-1] for write in scheduler.wire.writes]
    promises = [at for at, write in enumerate(first) if write.startswith("PATCH") and "/t-" in write]
    deletions = [at for at, write in enumerate(first) if write.startswith("DELETE")]
    assert max(promises[:2]) < min(deletions)
    assert len(await finish(world)) == 2
    found = await pods(world)
    assert not any(found[name]["status"].get("nominatedNodeName") for name in GANG), "the binding has cleared them"


# First each write once: promises, conditions and deletions come in pairs, of which one is met before and one after.
BEFORE_AND_AFTER = sorted(itertools.product(range(1, 7), [False, True]), key=lambda each: each[0] % 2 != each[1])


def when(value: object) -> str:
    return ("before it is sent", "before it is answered")[value] if isinstance(value, bool) else str(value)


@pytest.mark.slow_but_first(6)
@pytest.mark.parametrize(("nth", "after"), BEFORE_AND_AFTER, ids=when)
async def test_killed_at_any_write_of_an_eviction(world: World, nth: int, after: bool) -> None:
    """Two promises, two conditions, two deletions."""
    await submit(world)
    first = await world.scheduler(wait=False, concurrency=1)
    first.wire.die("*", "/pods/", nth=nth, after=after)
    await asyncio.wait_for(first.wire.dead.wait(), 20)
    await first.kill()
    found = await pods(world)
    if await leaving(world):
        assert all(found[name]["status"].get("nominatedNodeName") for name in GANG)
    await world.scheduler()
    assert len(await finish(world)) == 2


@pytest.mark.slow_but_first(6)
@pytest.mark.parametrize(("nth", "after"), BEFORE_AND_AFTER, ids=when)
async def test_any_answer_may_be_lost(world: World, nth: int, after: bool) -> None:
    await submit(world)
    scheduler = await world.scheduler(wait=False, concurrency=1)
    scheduler.wire.lose("*", "/pods/", nth=nth, after=after)
    assert len(await finish(world)) == 2


async def test_a_preemptor_that_is_deleted_before_anyone_has_left_saves_them(world: World) -> None:
    """Deletions fail for a while; then the preemptor is deleted and needs no room."""
    await submit(world)
    scheduler = await world.scheduler(wait=False)
    scheduler.wire.lose("PATCH", "/pods/[abcd]/status$", times=1000)

    async def promised() -> bool:
        found = await pods(world)
        return all(found[name]["status"].get("nominatedNodeName") for name in GANG)

    await world.until(promised, "the gang has been promised room")
    await world.delete(PODS, *GANG)
    await asyncio.sleep(0.5)
    scheduler.wire.rules.clear()
    await world.settled(scheduler)
    assert await leaving(world) == set()
    found = await pods(world)
    assert all(condition(found[name], "DisruptionTarget").get("status") != "True" for name in LOW)
    assert all(record.evicting is False for record in scheduler.service.state.pods.values())


@pytest.mark.usefixtures("embedded")
async def test_pod_protected_from_eviction_is_spared_and_other_victims_are_selected(world: World) -> None:
    await submit(world)
    scheduler = await world.scheduler(wait=False)
    world.server.faults.answer("DELETE", "/pods/[abcd]$", 403)
    evicted = await finish(world)
    # (The PodGroup that the scheduler has generated is deleted with its last member.)
    writes = [write for write in scheduler.wire.writes if write.startswith("DELETE") and "/pods/" in write]
    deletions = [write.rpartition("/")[-1] for write in writes]
    refused = deletions[0]
    assert len(evicted) == 2
    assert refused not in evicted
    assert set(deletions) == evicted | {refused}
    assert condition((await pods(world))[refused], "DisruptionTarget")["status"] == "False"


async def test_victim_marked_before_a_crash_and_spared_after_it_gets_its_condition_corrected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first scheduler dies between condition and deletion; then the preemptor needs no room."""
    monkeypatch.setattr(leftover_evictions, "_STALE", 0.5)
    await submit(world)
    first = await world.scheduler(wait=False, concurrency=1)
    first.wire.die("DELETE", "/pods/")
    await asyncio.wait_for(first.wire.dead.wait(), 20)
    await first.kill()
    await world.delete(PODS, *GANG)

    async def told(status: str) -> bool:
        said = [condition(item, "DisruptionTarget").get("status") for item in (await pods(world)).values()]
        return said.count(status) == 2

    assert await told("True")
    second = await world.scheduler()
    # Even where the first attempt fails.
    second.wire.lose("PATCH", "/pods/[abcd]/status$", times=1)
    await world.until(lambda: told("False"), "two are told that they stay")
    await world.settled(second)
    assert await leaving(world) == set()


@pytest.mark.parametrize("way", ["delete", "eviction-api"])
@pytest.mark.parametrize("needed", [True, False], ids=["somebody waits", "nobody waits any more"])
async def test_a_gang_that_has_begun_to_leave_leaves_whole_after_a_crash(
    world: World, tmp_path: Path, way: str, needed: bool
) -> None:
    """The first scheduler dies after the eviction of one of four members."""
    config = tmp_path / "policy.yaml"
    config.write_text(f"{DEFAULT_POLICY}\nphalanx: {{evictions: {way}}}\n")
    await world.node("n1", cpu="4")
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": world.name}}
    await world.make({**high, "value": 1000})
    low = {"labels": {"pod-group.scheduling.sigs.k8s.io/name": "low", MINIMUM: "4"}}
    for name in LOW:
        await world.pod(name, nodeName=f"{world.name}-n1", terminationGracePeriodSeconds=30, **low)
    await world.phase("Running", *LOW)
    await world.pods(*GANG, priorityClassName=world.name, **gang())
    first = await world.scheduler(wait=False, concurrency=1, config=str(config))
    method, path = ("DELETE", "/pods/") if way == "delete" else ("POST", "/eviction$")
    first.wire.die(method, path, nth=2)
    await asyncio.wait_for(first.wire.dead.wait(), 20)
    await first.kill()
    assert len(await leaving(world)) == 1
    if not needed:
        await world.delete(PODS, *GANG)
    await world.scheduler(config=str(config))

    async def all_leave() -> bool:
        return len(await leaving(world)) == 4

    await world.until(all_leave, "the rest of the gang leaves, too", seconds=20.0)
