"""Several replicas, one lease: one writes, the others wait; without the lease no replica writes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phalanx.kube.client import PatchType
from phalanx.kube.paths import Resource
from tests.e2e.world import PODS, Running, World, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
GANG = {"pod-group/name": "g", "pod-group/min-available": "3"}


async def replica(world: World, *, wait: bool = True, **options: Any) -> Running:
    return await world.scheduler(
        wait=wait,
        leader_elect=True,
        lease_namespace=world.name,
        lease_name="turn",
        lease_seconds=6.0,
        renew_seconds=4.0,
        retry_seconds=0.2,
        **options,
    )


async def standby(world: World) -> Running:
    made = await replica(world, wait=False)

    async def waits() -> bool:
        return made.service.condition() == "standby"

    await world.until(waits, "the second replica waits for its turn")
    return made


async def test_a_standby_takes_over_when_the_leader_dies(world: World) -> None:
    """The leader dies in the middle of a gang, which the successor finishes."""
    await world.node("n1", cpu="3")
    first = await replica(world, concurrency=1)
    second = await standby(world)
    first.wire.die("POST", "/binding$", nth=2)
    await world.pods("a", "b", "c", labels=GANG)
    await first.wire.dead.wait()
    await first.kill()
    await world.until_bound("a", "b", "c")
    assert second.service.condition() == "scheduling"


async def test_schedulers_of_two_names_lead_at_the_same_time(world: World) -> None:
    """Each has a lease of its own, and remembers in objects of its own."""
    await world.node("n1")
    for name in ("gpu", "batch"):
        await world.scheduler(
            scheduler_names=(name,), leader_elect=True, lease_namespace=world.name, retry_seconds=0.2
        )
    await world.make(pod("a", scheduler="gpu"))
    await world.make(pod("b", scheduler="batch"))
    await world.until_bound("a", "b")
    leases = {each["metadata"]["name"] for each in await world.list(LEASES)}
    assert leases == {"gpu-scheduler", "batch-scheduler"}


async def test_standby_names_the_leader_that_it_waits_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await replica(world)
    with caplog.at_level("INFO", "phalanx.daemon.standby"):
        await standby(world)
    lease = await world.client.get(LEASES.path(world.name, "turn"))
    assert f"waits for the lease; {lease['spec']['holderIdentity']} leads" in caplog.text


async def test_a_standby_writes_nothing(world: World) -> None:
    await world.node("n1", cpu="1")
    first = await replica(world)
    second = await standby(world)
    await world.pods("a", "b", "c", labels=GANG)
    await world.until_held("a", "b", "c")
    await world.settled(first, quiet=0.3)
    assert second.wire.writes == []


async def test_standby_caches_the_cluster_and_lists_pods_again_when_it_becomes_leader(world: World) -> None:
    """A list from before could miss the last bindings of the leader before."""
    await world.node("n1")
    first = await replica(world)
    second = await standby(world)
    state = second.service.state
    second.wire.lose("GET", "/pods$", nth=10**9)  # affects no pod; it counts
    lists = second.wire.rules[-1]
    await world.pods("a", "b", "c", labels=GANG)
    await world.until_bound("a", "b", "c")

    async def watched() -> bool:
        ours = [record.pod for record in state.pods.values() if record.pod.namespace == world.namespace]
        return [pod.node for pod in ours] == [f"{world.name}-n1"] * 3

    await world.until(watched, "the standby has seen the bindings")
    assert second.wire.writes == []
    before = lists.seen
    await first.stop()
    await second.ready()
    assert lists.seen > before


async def test_an_orderly_end_hands_the_lease_over_at_once(world: World) -> None:
    await world.node("n1")
    first = await replica(world)
    second = await standby(world)
    await first.stop()
    assert not first.service.leadership.lost_because
    await second.ready()
    await world.pods("a", "b", "c", labels=GANG)
    await world.until_bound("a", "b", "c")


async def test_a_leader_that_lost_its_lease_ends_without_another_write(world: World) -> None:
    await world.node("n1")
    first = await replica(world)
    for _ in range(50):
        # The process that removes the lease can race with a renewal.
        patch = {"spec": {"holderIdentity": "usurper", "leaseDurationSeconds": 3600}}
        await world.client.patch(LEASES.path(world.name, "turn"), patch, PatchType.MERGE)
        done, _ = await asyncio.wait([first.task], timeout=0.1)
        if done:
            break
    await first.task
    assert first.service.leadership.lost_because
    assert first.service.condition() == "stopping"
    writes = first.wire.count()
    await world.pods("a", "b", "c", labels=GANG)
    await asyncio.sleep(0.3)
    assert first.wire.count() == writes
    assert set((await world.placement()).values()) == {""}
    await world.delete(PODS, "a", "b", "c")


async def test_renewals_are_counted_with_the_other_requests(world: World) -> None:
    leader = await replica(world)
    told = list[tuple[str, int]]()
    answered = leader.client.answered

    def listen(method: str, path: str, status: int, seconds: float) -> None:
        if "/leases/" in path:
            told.append((method, status))
        answered(method, path, status, seconds)

    leader.client.answered = listen

    async def renewed() -> bool:
        return told.count(("PUT", 200)) >= 2

    await world.until(renewed, "the lease is renewed, and that is counted")


async def test_room_reserved_for_a_gang_by_the_leader_stays_reserved_by_its_successor(world: World) -> None:
    """The room stays reserved during any grace period of the victims, and is released with the gang."""
    for number in range(6):
        await world.node(f"n{number}", cpu="4")
    await make_priority(world)
    first = await replica(world)
    await standby(world)
    low = [f"low-{number}" for number in range(6)]
    await world.pods(*low, cpu="4", terminationGracePeriodSeconds=3600)
    await world.until_bound(*low)
    await world.phase("Running", *low)
    high = {**GANG, "pod-group/min-available": "2"}
    await world.pods("high-0", "high-1", cpu="4", labels=high, priorityClassName=world.name)

    async def seen() -> tuple[set[str], set[str]]:
        pods = await world.list(PODS)
        leaving = {each["metadata"]["name"] for each in pods if each["metadata"].get("deletionTimestamp")}
        held = {each["metadata"]["name"] for each in pods if each["status"].get("nominatedNodeName")}
        return leaving, held

    async def decided() -> set[str]:
        leaving, held = await seen()
        return leaving if len(leaving) == len(held) == 2 else set()

    victims = await world.until(decided, "two leave, and their room is held")
    await first.stop()
    second = world.schedulers[-1]
    await second.ready()
    await world.settled(second, quiet=1.5)
    assert await seen() == (victims, {"high-0", "high-1"})
    await world.delete(PODS, "high-0")

    async def given_up() -> bool:
        return (await seen())[1] == set()

    await world.until(given_up, "what is held for the rest of the gang is given up")
    assert (await seen())[0] == victims


async def make_priority(world: World) -> None:
    document = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": world.name}}
    await world.make({**document, "value": 1000})
