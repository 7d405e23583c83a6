"""Execution of a plan: bindings that succeed, fail once, fail permanently, or concern pods bound elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import msgspec
import pytest

from phalanx.cluster.pods.nominations import Nomination
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.daemon.executor import Executor, gone_guard
from phalanx.dialects.core import decode_pod
from phalanx.dialects.gangs.plan_marks import encode_mark
from phalanx.dialects.signatures import Signer
from phalanx.dialects.warnings import ObjectWarning, group_ref, pod_ref
from phalanx.execution.binder import Binder, BindResult
from phalanx.execution.conditions import PodConditions
from phalanx.execution.disruptions import Disruptions
from phalanx.execution.evictor import Evictor, EvictResult
from phalanx.execution.preparation import Preparations
from phalanx.execution.writes import WritePool
from phalanx.kube.events import EventRecorder
from phalanx.kube.retry import Backoff, RetryPolicy
from phalanx.model.decisions import Bind, Evict, EvictionReason, Nominate, Plan
from phalanx.model.events import PodRemoved, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.pod import MemberState, PodPhase
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler
from phalanx.status.event_publisher import EventPublisher
from phalanx.status.eviction_events import EvictionEvents
from phalanx.status.group_status import GroupStatuses
from phalanx.status.plan_publisher import PlanPublisher
from phalanx.status.verdict_publisher import VerdictPublisher
from tests.cluster_content import MARK, REF, Clock, G, Recorded, pod, state_of
from tests.execution.podserver import PodServer

SIGNER = Signer((("1", b"k" * 32),))


class Statuses:
    """A stand-in for GroupStatuses."""

    def __init__(self) -> None:
        self.touched: list[GangKey] = []
        self.evicted: dict[GangKey, str] = {}
        self.foreign: set[GangKey] = set()

    def touch(self, key: GangKey) -> None:
        self.touched.append(key)

    def disrupted(self, key: GangKey, message: str) -> None:
        self.evicted[key] = message

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
        recorder = cast(EventRecorder, self.recorded)
        self.pod_events = "gang"
        event_publisher = EventPublisher(recorder, state, pod_events=lambda: self.pod_events)
        conditions = PodConditions(client, self.pool, lambda: 1000.0, retry=RetryPolicy(base=0.001))
        statuses = cast(GroupStatuses, self.statuses)
        evictor = Evictor(client, self.pool, lambda: 1000.0, attempts=2, backoff=lambda: Backoff(base=0.001))
        self.publisher = PlanPublisher(
            state,
            event_publisher,
            EvictionEvents(recorder, state),
            VerdictPublisher(state, conditions, event_publisher, self.statuses.touch, Clock()),
            statuses,
        )
        self.executor = Executor(
            state,
            Preparations(self._binder, self._bound, {}),
            Disruptions(conditions, evictor, self._evicted, gone_guard(state)),
            conditions,
            self.publisher,
            guard=lambda: lambda bind: self.objections.get(bind.name),
            wake=self._wake,
            later=lambda seconds, call: self.pending.append((seconds, call)),
            now=lambda: 1000.0,
        )
        for record in state.pods.values():
            self.server.add(record.pod.name, **({"nodeName": record.pod.node} if record.pod.node else {}))
            self.see(record.pod.name)

    def _binder(self, report: Callable[[BindResult], None]) -> Binder:
        return Binder(
            self.server.client(), self.pool, report, SIGNER, attempts=2, backoff=lambda: Backoff(base=0.001)
        )

    def _bound(self, result: Any) -> None:
        self.executor.bound(result)

    def _evicted(self, result: EvictResult) -> None:
        self.executor.evicted(result)

    def _wake(self) -> None:
        self.wakes += 1

    def see(self, name: str) -> None:
        entry = self.server.pods["ns", name]
        entry["spec"]["schedulerName"] = "phalanx"
        self.executor.pod_seen(decode_pod(msgspec.json.encode(entry)))

    async def preempt(self, waiting: str, victims: str) -> None:
        """Carries out a decision by hand: names of pods, with spaces between them."""
        evictions, nominations = [], []
        for record in [self.state.pods[f"uid-{name}"] for name in victims.split()]:
            self.state.pods.mark_evicting(record)
            evictions.append(evict(record))
        for record in [self.state.pods[f"uid-{name}"] for name in waiting.split()]:
            self.state.pods.nominate(
                record, 0, Nomination(frozenset(entry.uid for entry in evictions), 2000.0, "c1")
            )
            nominations.append(Nominate(record.pod.uid, "ns", record.pod.name, "n1", "c1"))
        self.executor.carry_out(Plan(1, nominations=nominations, evictions=evictions))
        await self.settle()

    async def cycle(self) -> Plan:
        plan = self.scheduler.cycle(1000.0)
        self.executor.carry_out(plan)
        await self.settle()
        return plan

    async def settle(self) -> None:
        async with asyncio.timeout(60):
            await self.pool.drained()

    def run_later(self) -> list[float]:
        """Lets the time of everything that waits come; how long it was to wait."""
        due, self.pending = self.pending, []
        for _, call in due:
            call()
        return [seconds for seconds, _ in due]

    def state_of(self, name: str) -> MemberState:
        return self.state.pods[f"uid-{name}"].state


def evict(record: PodRecord, cause: str = "c1") -> Evict:
    pod, key = record.pod, record.gang.key if record.gang is not None else None
    reason = EvictionReason.PREEMPTED
    return Evict(pod.uid, "ns", pod.name, pod.node, reason, "it is worth less", "pod ns/p", key, cause)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    gang = Gang(G, source=REF, min_member=3)
    made = World(state_of(pod("p0"), pod("p1"), pod("p2"), gang=gang))
    yield made
    await made.pool.close()


async def test_gang_is_bound_and_its_event_recorded_once(world: World) -> None:
    await world.cycle()
    assert [world.server.node_of(f"p{number}") for number in range(3)] == ["n1"] * 3
    note = "Successfully assigned 3 pods of gang ns/g together: n1 (3)"
    assert world.recorded.events == [("PodGroup/g", "Scheduled", note)]


async def test_event_of_a_gang_without_an_object_is_recorded_on_its_first_member() -> None:
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
        "Successfully assigned 2 pods of gang ns/g together: n1 (2)",
        "Successfully assigned 1 pod of gang ns/g together: n1 (1)",
    ]


@pytest.mark.parametrize(("setting", "members"), [("auto", 3), ("gang", 0), ("member", 3)])
async def test_members_of_a_small_gang_get_events_of_their_own_as_the_policy_says(
    world: World, setting: str, members: int
) -> None:
    world.pod_events = setting
    await world.cycle()
    events = [(about, note) for about, reason, note in world.recorded.events if reason == "Scheduled"]
    own = [entry for entry in events if entry[0].startswith("Pod/")]
    assert own == [(f"Pod/p{number}", f"Successfully assigned ns/p{number} to n1") for number in range(members)]
    assert [about for about, _ in events if about not in dict(own)] == ["PodGroup/g"]


@pytest.mark.parametrize(("setting", "members"), [("auto", 0), ("gang", 0), ("member", 9)])
def test_members_of_a_large_gang_get_events_only_if_the_policy_requires_them(setting: str, members: int) -> None:
    state = state_of(*(pod(f"p{number}") for number in range(9)), gang=Gang(G, source=REF, min_member=9))
    recorded = Recorded()
    publisher = EventPublisher(cast(EventRecorder, recorded), state, pod_events=lambda: setting)
    binds = [Bind(f"uid-p{number}", "ns", f"p{number}", "n1", cause="c1", gang=G) for number in range(9)]
    publisher.bindings_posted(binds)
    for bind in binds:
        publisher.binding_answered(bind, bound=True)
    assert [about for about, _ in recorded.told].count("PodGroup/g") == 1
    assert len(recorded.told) == members + 1


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
    # Its room stays reserved, and the remaining members of its gang are bound.
    assert [world.server.node_of(name) for name in ("p0", "p2")] == ["n1", "n1"]


async def test_binding_that_waits_for_volumes_is_published_once(world: World) -> None:
    """The reason is not Unschedulable: an autoscaler must not react."""
    world.server.fail("POST", "/p1/binding", status=403, times=1)
    plan = await world.cycle()
    (bind,) = [entry for entry in plan.binds if entry.name == "p1"]
    patches = []
    for _ in range(2):
        world.executor.delayed(bind, "waits for claim data, which example.com/x has to provision")
        await world.settle()
        patches.append(len(world.server.patches))
    assert patches[0] == patches[1]
    condition = world.server.condition("p1", "PodScheduled")
    assert (condition["status"], condition["reason"]) == ("False", "WaitingForVolumes")
    assert condition["message"] == "waits for claim data, which example.com/x has to provision"


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


async def test_pod_is_not_bound_to_a_deleted_node(world: World) -> None:
    world.objections["p1"] = "node n1 is gone"
    await world.cycle()
    assert "POST p1/binding" not in world.server.calls
    assert world.state_of("p1") is MemberState.PENDING


async def test_pod_bound_elsewhere_stays_charged_until_the_watch_reports_it(world: World) -> None:
    world.server.pods["ns", "p1"]["spec"]["nodeName"] = "n7"
    await world.cycle()
    assert world.state_of("p1") is MemberState.ASSUMED
    world.state.apply(PodUpdated(pod("p1", node="n7")))
    assert world.run_later() == [30.0]
    assert world.state_of("p1") is MemberState.BOUND


async def test_binding_never_confirmed_by_the_watch_is_placed_again(world: World) -> None:
    world.server.pods["ns", "p1"]["metadata"]["uid"] = "uid-of-its-successor"
    await world.cycle()
    world.run_later()
    assert world.state_of("p1") is MemberState.PENDING
    assert world.wakes == 1


async def test_an_old_patience_does_not_end_a_new_binding(world: World) -> None:
    """The timer of a pod bound elsewhere must not undo the place that a later plan assigned."""
    world.server.pods["ns", "p1"]["metadata"]["uid"] = "uid-of-its-successor"
    await world.cycle()
    (_, old), world.pending = world.pending[0], []
    world.state.pods.binding_failed("uid-p1")
    world.server.pods["ns", "p1"]["metadata"]["uid"] = "uid-p1"
    await world.cycle()
    assert world.state_of("p1") is MemberState.ASSUMED
    old()
    assert world.state_of("p1") is MemberState.ASSUMED


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
    world.publisher.publish_warnings(
        ObjectWarning(about, "Warning", "InvalidPod", "...")
        for about in (
            pod_ref("ns", "theirs", "uid-theirs"),
            pod_ref("ns", "guest", "uid-guest"),
            pod_ref("ns", "p0", "uid-p0"),
            group_ref(theirs),
            group_ref(REF),
        )
    )
    assert [about for about, _ in world.recorded.told] == ["Pod/guest", "Pod/p0", "PodGroup/g"]


async def test_device_marks_are_written_with_the_bindings_of_a_gang(world: World) -> None:
    plan = await world.cycle()
    assert [bind.mark for bind in plan.binds] == [MARK] * 3
    for bind in plan.binds:
        annotations = world.server.pods["ns", bind.name]["metadata"]["annotations"]
        assert bind.gang is not None
        assert annotations == {"phalanx.dev/gang-plan": encode_mark(MARK, SIGNER, bind.uid, bind.gang)}


RUNNING, TERMINATING = MemberState.RUNNING, MemberState.TERMINATING


@pytest.fixture
async def full() -> AsyncIterator[World]:
    """Pod p waits for room that v and w have."""
    running = [pod(name, "", node="n1", phase=PodPhase.RUNNING) for name in "vw"]
    made = World(state_of(pod("p", ""), *running))
    yield made
    await made.pool.close()


async def test_room_is_promised_and_then_cleared(full: World) -> None:
    await full.preempt("p", "v w")
    assert full.server.nominated("p") == "n1"
    assert full.server.calls[0] == "PATCH p/status"
    assert all(full.server.terminates(name) for name in "vw")
    assert (full.state_of("v"), full.state_of("w")) == (TERMINATING, TERMINATING)
    assert full.wakes == 0


async def test_a_pod_that_may_not_be_evicted_is_spared_for_a_minute(full: World) -> None:
    full.server.fail("DELETE", "/v", status=403, times=100)
    await full.preempt("p", "v w")
    assert full.state_of("v") is RUNNING
    assert full.state.pods["uid-v"].no_eviction_until == 1060.0
    assert full.state_of("w") is TERMINATING
    assert full.wakes == 1


async def test_victim_of_a_deleted_preemptor_can_be_selected_again_at_once(full: World) -> None:
    full.server.leave("p")
    await full.preempt("p", "v w")
    assert (full.state_of("v"), full.state_of("w")) == (RUNNING, RUNNING)
    assert full.state.pods["uid-v"].no_eviction_until == 1000.0
    assert not any(full.server.terminates(name) for name in "vw")
    assert full.wakes >= 1


@pytest.mark.parametrize("end", ["gone", "terminating", "gated", "bound by another"])
async def test_delayed_evictions_are_cancelled_with_their_preemptor(full: World, end: str) -> None:
    """The API server throttles the deletions; before the retry the preemptor ends."""
    full.server.fail("DELETE", "/v", status=429)
    waiting = full.server.pods["ns", "p"]

    def strike(call: Any) -> None:
        if call.method == "DELETE" and end == "gone":
            full.executor.pod_gone("uid-p")
        elif call.method == "DELETE":
            match end:
                case "terminating":
                    waiting["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
                case "gated":
                    waiting["spec"]["schedulingGates"] = [{"name": "example.com/hold"}]
                case _:
                    waiting["spec"]["nodeName"] = "n9"
            full.server.change(waiting)
            full.see("p")

    full.server.before = strike
    await full.preempt("p", "v")
    assert full.server.calls.count("DELETE v") == 1
    assert not full.server.terminates("v")
    assert full.state_of("v") is RUNNING


async def test_a_victim_that_leaves_by_itself_is_not_deleted(full: World) -> None:
    gone = msgspec.structs.replace(full.state.pods["uid-v"].pod, phase=PodPhase.SUCCEEDED)
    full.state.pods.mark_evicting(full.state.pods["uid-v"])
    victim = evict(full.state.pods["uid-v"])
    full.state.apply(PodUpdated(gone))
    full.executor.carry_out(Plan(1, evictions=[victim]))
    await full.settle()
    assert full.server.calls == []
    assert full.state_of("v") is MemberState.SUCCEEDED


async def test_a_pod_that_one_plan_nominates_and_binds_is_only_bound(full: World) -> None:
    record = full.state.pods["uid-p"]
    plan = full.scheduler.cycle(1000.0)
    assert [bind.name for bind in plan.binds] == ["p"]
    plan.nominations.append(Nominate(record.pod.uid, "ns", "p", "n1", "c1"))
    full.executor.carry_out(plan)
    await full.settle()
    assert full.server.patches == []
    assert full.server.node_of("p") == "n1"


async def test_room_that_is_found_elsewhere_calls_evictions_off(full: World) -> None:
    full.server.change(full.server.pods["ns", "p"])  # so that the promise waits for the watch
    await full.preempt("p", "v")
    full.state.pods.cancel_nomination(full.state.pods["uid-p"])
    await full.cycle()
    assert full.server.node_of("p") == "n1"
    assert full.state_of("v") is RUNNING
    assert not full.server.terminates("v")


async def test_a_pod_that_is_placed_elsewhere_needs_no_room_that_is_being_cleared(full: World) -> None:
    """The promise is recorded and the deletion is under way, but the API server throttles it."""
    full.server.fail("DELETE", "/v", status=429)

    def place(call: Any) -> None:
        if call.method == "DELETE":
            full.state.pods.cancel_nomination(full.state.pods["uid-p"])
            full.executor.carry_out(full.scheduler.cycle(1000.0))

    full.server.before = place
    await full.preempt("p", "v")
    assert full.server.node_of("p") == "n1"
    assert full.server.calls.count("DELETE v") == 1
    assert full.state_of("v") is RUNNING


async def test_a_gang_that_is_evicted_as_a_whole_says_so() -> None:
    members = [pod(f"m{number}", node="n1", phase=PodPhase.RUNNING) for number in range(3)]
    world = World(state_of(pod("p", ""), *members, gang=Gang(G, source=REF, min_member=2)))
    await world.preempt("p", "m0")
    assert world.statuses.evicted == {}
    assert world.statuses.touched == [G]
    await world.preempt("p", "m1 m2")
    assert world.statuses.evicted == {G: "preempted by pod ns/p (it is worth less)"}
    await world.pool.close()
