"""What becomes of a plan: bindings that succeed, fail once, fail for ever, or concern pods that went elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import msgspec
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.daemon.announcer import Announcer
from phalanx.daemon.executor import Executor
from phalanx.daemon.group_status import GroupStatuses
from phalanx.daemon.narrator import Narrator
from phalanx.dialects.core import decode_pod
from phalanx.dialects.notices import Notice, group_ref, pod_ref
from phalanx.execution.binder import Binder
from phalanx.execution.conditions import PodConditions
from phalanx.execution.writes import WritePool
from phalanx.kube.events import EventRecorder
from phalanx.kube.retry import Backoff
from phalanx.model.decisions import Plan
from phalanx.model.events import PodRemoved, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.pod import MemberState
from phalanx.scheduling.policy import load_policy
from phalanx.scheduling.scheduler import Scheduler
from tests.daemon.nouns import MARK, REF, Clock, G, Recorded, pod, state_of
from tests.execution.podserver import PodServer


class Statuses:
    """In place of GroupStatuses."""

    def __init__(self) -> None:
        self.touched: list[GangKey] = []
        self.foreign: set[GangKey] = set()

    def touch(self, key: GangKey) -> None:
        self.touched.append(key)

    def are_ours(self, key: GangKey) -> bool:
        return key not in self.foreign


class World:
    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.server = PodServer()
        self.pool = WritePool(concurrency=4)
        client = self.server.client()
        self.recorded = Recorded()
        self.statuses = Statuses()
        self.pending: list[tuple[float, Callable[[], None]]] = []
        self.wakes = 0
        self.objections: dict[str, str] = {}
        self.scheduler = Scheduler(state, load_policy())
        narrator = Narrator(cast(EventRecorder, self.recorded), state)
        conditions = PodConditions(client, self.pool, lambda: 1000.0)
        statuses = cast(GroupStatuses, self.statuses)
        self.executor = Executor(
            state,
            Binder(client, self.pool, self._bound, attempts=2, backoff=lambda: Backoff(base=0.001)),
            conditions,
            narrator,
            Announcer(state, conditions, narrator, self.statuses.touch, Clock()),
            statuses,
            guard=lambda: lambda bind: self.objections.get(bind.name),
            wake=self._wake,
            later=lambda seconds, call: self.pending.append((seconds, call)),
        )
        for record in state.pods.values():
            self.server.add(record.pod.name)
            self.see(record.pod.name)

    def _bound(self, result: Any) -> None:
        self.executor.bound(result)

    def _wake(self) -> None:
        self.wakes += 1

    def see(self, name: str) -> None:
        entry = self.server.pods["ns", name]
        entry["spec"]["schedulerName"] = "phalanx"
        self.executor.pod_seen(decode_pod(msgspec.json.encode(entry)))

    async def cycle(self) -> Plan:
        plan = self.scheduler.cycle(1000.0)
        self.executor.carry_out(plan)
        await self.settle()
        return plan

    async def settle(self) -> None:
        async with asyncio.timeout(5):
            await self.pool.drained()

    def run_later(self) -> list[float]:
        """Lets the time of everything that waits come; how long it was to wait."""
        due, self.pending = self.pending, []
        for _, call in due:
            call()
        return [seconds for seconds, _ in due]

    def state_of(self, name: str) -> MemberState:
        return self.state.pods[f"uid-{name}"].state


@pytest.fixture
async def world() -> AsyncIterator[World]:
    gang = Gang(G, source=REF, min_member=3)
    made = World(state_of(pod("p0"), pod("p1"), pod("p2"), gang=gang))
    yield made
    await made.pool.close()


async def test_a_gang_is_bound_and_told_of_once(world: World) -> None:
    await world.cycle()
    assert [world.server.node_of(f"p{number}") for number in range(3)] == ["n1"] * 3
    note = "Successfully assigned 3 member(s) of gang ns/g together: n1 (3)"
    assert world.recorded.events == [("PodGroup/g", "Scheduled", note)]


async def test_a_gang_without_an_object_is_told_of_at_its_first_member() -> None:
    world = World(state_of(pod("p1"), pod("p0"), gang=Gang(G, min_member=2)))
    await world.cycle()
    assert world.recorded.told == [("Pod/p0", "Scheduled")]


async def test_a_pod_on_its_own_has_its_own_event() -> None:
    world = World(state_of(pod("p", "")))
    await world.cycle()
    assert world.recorded.events == [("Pod/p", "Scheduled", "Successfully assigned ns/p to n1")]


async def test_a_first_refusal_is_tried_again_at_once(world: World) -> None:
    world.server.fail("POST", "/p1/binding", status=403)
    await world.cycle()
    assert world.state_of("p1") is MemberState.PENDING
    assert world.wakes == 1
    plan = await world.cycle()
    assert [bind.name for bind in plan.binds] == ["p1"]
    assert world.server.node_of("p1") == "n1"
    notes = [note for about, reason, note in world.recorded.events if reason == "Scheduled"]
    assert notes == [
        "Successfully assigned 2 member(s) of gang ns/g together: n1 (2)",
        "Successfully assigned 1 member(s) of gang ns/g together: n1 (1)",
    ]


async def test_refusals_without_end_come_slower_and_slower(world: World) -> None:
    world.server.fail("POST", "/p1/binding", status=403, times=100)
    waits = []
    for _ in range(8):
        await world.cycle()
        waits += world.run_later()
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]
    condition = world.server.condition("p1", "PodScheduled")
    assert (condition["status"], condition["reason"]) == ("False", "SchedulerError")
    assert "403 Forbidden" in condition["message"]
    assert len([patch for patch in world.server.patches if patch["metadata"]["uid"] == "uid-p1"]) == 1
    # Its room stays its own meanwhile, and the others of its gang are bound.
    assert [world.server.node_of(name) for name in ("p0", "p2")] == ["n1", "n1"]


async def test_success_wipes_out_earlier_failures(world: World) -> None:
    world.server.fail("POST", "/p1/binding", status=403, times=2)
    await world.cycle()
    await world.cycle()
    assert world.run_later() == [1.0]
    await world.cycle()
    assert world.server.node_of("p1") == "n1"
    # The pod is deleted and its successor fails once: that is a first failure again.
    world.executor.pod_gone("uid-p1")
    assert world.pending == []


async def test_a_node_that_is_gone_is_not_bound_to(world: World) -> None:
    world.objections["p1"] = "node n1 is gone"
    await world.cycle()
    assert "POST p1/binding" not in world.server.calls
    assert world.state_of("p1") is MemberState.PENDING


async def test_a_pod_that_went_elsewhere_keeps_its_place_until_the_watch_tells(world: World) -> None:
    world.server.pods["ns", "p1"]["spec"]["nodeName"] = "n7"
    await world.cycle()
    assert world.state_of("p1") is MemberState.PLACED
    world.state.apply(PodUpdated(pod("p1", node="n7")))
    assert world.run_later() == [30.0]
    assert world.state_of("p1") is MemberState.BOUND


async def test_what_the_watch_never_tells_is_placed_anew(world: World) -> None:
    world.server.pods["ns", "p1"]["metadata"]["uid"] = "uid-of-its-successor"
    await world.cycle()
    world.run_later()
    assert world.state_of("p1") is MemberState.PENDING
    assert world.wakes == 1


async def test_an_old_patience_does_not_end_a_new_binding(world: World) -> None:
    """The timer of a pod that had moved must not take back the place that a later plan gave it."""
    world.server.pods["ns", "p1"]["metadata"]["uid"] = "uid-of-its-successor"
    await world.cycle()
    (_, old), world.pending = world.pending[0], []
    world.state.forget("uid-p1")
    world.server.pods["ns", "p1"]["metadata"]["uid"] = "uid-p1"
    await world.cycle()
    assert world.state_of("p1") is MemberState.PLACED
    old()
    assert world.state_of("p1") is MemberState.PLACED


async def test_a_pod_that_is_deleted_during_its_binding_leaves_nothing_behind(world: World) -> None:
    world.server.pods.clear()
    world.executor.carry_out(world.scheduler.cycle(1000.0))
    for name in ("p0", "p1", "p2"):
        world.state.apply(PodRemoved(f"uid-{name}"))
        world.executor.pod_gone(f"uid-{name}")
    await world.settle()
    assert world.pending == []
    assert world.recorded.events == []


async def test_pods_of_other_schedulers_are_not_kept_in_mind(world: World) -> None:
    entry = world.server.add("theirs", schedulerName="default-scheduler")
    before = world.server.calls.copy()
    world.executor.pod_seen(decode_pod(msgspec.json.encode(entry)))
    await world.settle()
    assert world.server.calls == before


async def test_complaints_about_the_objects_of_other_schedulers_are_left_to_them(world: World) -> None:
    world.state.apply(PodUpdated(pod("theirs", "", scheduler="default-scheduler")))
    world.state.apply(PodUpdated(pod("guest", "g", scheduler="default-scheduler")))
    world.statuses.foreign.add(GangKey("ns", "theirs"))
    theirs = msgspec.structs.replace(REF, name="theirs")
    world.executor.tell(
        Notice(about, "Warning", "InvalidPod", "...")
        for about in (
            pod_ref("ns", "theirs", "uid-theirs"),
            pod_ref("ns", "guest", "uid-guest"),
            pod_ref("ns", "p0", "uid-p0"),
            group_ref(theirs),
            group_ref(REF),
        )
    )
    assert [about for about, _ in world.recorded.told] == ["Pod/guest", "Pod/p0", "PodGroup/g"]


async def test_marks_go_with_the_bindings_of_a_gang(world: World) -> None:
    plan = await world.cycle()
    assert [bind.mark for bind in plan.binds] == [MARK] * 3
    annotations = [world.server.pods["ns", bind.name]["metadata"]["annotations"] for bind in plan.binds]
    assert annotations == [{"phalanx.dev/gang-plan": "c1-1000/3/1000"}] * 3
