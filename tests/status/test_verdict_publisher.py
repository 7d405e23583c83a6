"""Verdicts are published once they have settled, on every waiting unit, and not again while unchanged."""

from __future__ import annotations

from typing import cast

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.execution.conditions import PodConditions
from phalanx.kube.events import EventRecorder
from phalanx.model.events import GangRemoved, GangUpdated, PodRemoved, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.verdict import NamedObject, Verdict
from phalanx.status.event_publisher import EventPublisher
from phalanx.status.verdict_publisher import VerdictPublisher
from tests.cluster_content import REF, Clock, G, Recorded, pod, state_of

FULL = Verdict("NotEnoughResources", "0/1 nodes are available: 1 Insufficient cpu.")
FULLER = Verdict("NotEnoughResources", "0/2 nodes are available: 2 Insufficient cpu.")
FEW = Verdict("NotEnoughMembers", "only 1 of the 3 required pods of gang ns/g exist")
NO_QUEUE = Verdict("QueueNotFound", "gang ns/g cannot start: there is no Queue q", unschedulable=False)
TURN = Verdict("AwaitingAdmission", "gang ns/g waits to be admitted", unschedulable=False)


class Judged:
    """Substitute for PodConditions: (uid, message) as published."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        # Published messages of pods (uid) in the API from before this process.
        self.before: dict[str, Verdict] = {}

    def told_before(self, uid: str, verdict: Verdict) -> bool | None:
        before = self.before.get(uid)
        return before == verdict if before is not None and before.cause == verdict.cause else None

    def set_verdict(self, uid: str, verdict: Verdict) -> None:
        self.said.append((uid, verdict.message))

    def take(self) -> list[tuple[str, str]]:
        said, self.said = self.said, []
        return said


class World:
    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.clock = Clock()
        self.judged = Judged()
        self.recorded = Recorded()
        self.statuses: list[GangKey] = []
        self.verdict_publisher = VerdictPublisher(
            state,
            cast(PodConditions, self.judged),
            EventPublisher(cast(EventRecorder, self.recorded), state),
            self.statuses.append,
            self.clock,
        )

    def after(self, seconds: float) -> list[tuple[str, str]]:
        """Return the messages published until then."""
        end = self.clock.now + seconds
        while (pause := self.verdict_publisher.publish_due()) is not None and self.clock.now + pause <= end:
            self.clock.now += pause
        self.clock.now = end
        self.verdict_publisher.publish_due()
        return self.judged.take()


def gang_world(members: int = 3, **gang: object) -> World:
    spec = Gang(G, source=REF, min_member=3, **gang)  # type: ignore[arg-type]
    return World(state_of(*(pod(f"p{number}") for number in range(members)), gang=spec))


ALL = [f"uid-p{number}" for number in range(3)]


def test_all_members_of_a_gang_get_their_verdict_at_once() -> None:
    world = gang_world()
    world.verdict_publisher.gang_decided(G, FULL)
    assert world.after(0.2) == []
    assert world.after(0.2) == [(uid, FULL.message) for uid in ALL]
    assert world.statuses == [G]
    members = [(f"Pod/p{number}", "FailedScheduling") for number in range(3)]
    assert world.recorded.told == [("PodGroup/g", "Unschedulable"), *members]


def test_verdict_in_the_conditions_is_not_published_again_after_a_restart() -> None:
    world = gang_world()
    world.judged.before = dict.fromkeys(ALL, FULL)
    world.verdict_publisher.gang_decided(G, FULL)
    world.after(1)
    assert world.recorded.told == []
    assert world.statuses == [G]
    world.state.apply(PodUpdated(pod("p3")))
    world.verdict_publisher.gang_decided(G, FULL)
    world.after(60)
    assert world.recorded.told[-1] == ("Pod/p3", "FailedScheduling")
    world.recorded.events.clear()
    world.verdict_publisher.gang_decided(G, NO_QUEUE)
    world.after(60)
    assert len(world.recorded.told) == 5  # new to all members


def test_changed_counts_after_a_restart_are_an_event_of_the_gang_and_not_of_each_member() -> None:
    world = gang_world()
    world.judged.before = dict.fromkeys(ALL, FULL)
    world.verdict_publisher.gang_decided(G, FULLER)
    world.after(1)
    assert world.recorded.told == [("PodGroup/g", "Unschedulable"), ("Pod/p0", "FailedScheduling")]


def test_new_member_after_a_restart_gets_its_verdict() -> None:
    world = gang_world()
    world.judged.before = dict.fromkeys(ALL[:2], FULL)
    world.verdict_publisher.gang_decided(G, FULL)
    world.after(1)
    assert world.recorded.told == [("Pod/p2", "FailedScheduling")]


def test_verdict_of_a_single_pod_is_not_published_again_after_a_restart() -> None:
    world = World(state_of(pod("a", ""), pod("b", "")))
    world.judged.before = {"uid-a": FULL}
    for name in ("a", "b"):
        world.verdict_publisher.pod_decided(f"uid-{name}", FULL)
    assert {uid for uid, _ in world.after(1)} == {"uid-a", "uid-b"}
    assert [about for about, _ in world.recorded.told] == ["Pod/b"]


def test_member_gets_one_event_per_reason_whatever_the_counts() -> None:
    world = gang_world()
    world.verdict_publisher.gang_decided(G, FULL)
    world.after(1)
    world.recorded.events.clear()
    world.verdict_publisher.gang_decided(G, FULLER)
    world.after(60)
    assert world.recorded.told == [("PodGroup/g", "Unschedulable"), ("Pod/p0", "FailedScheduling")]
    world.state.apply(PodUpdated(pod("p3")))
    world.verdict_publisher.gang_decided(G, FULLER)
    world.after(60)
    assert world.recorded.told[-1] == ("Pod/p3", "FailedScheduling")
    world.recorded.events.clear()
    world.verdict_publisher.gang_decided(G, FEW)
    world.after(60)
    assert [about for about, _ in world.recorded.told] == ["PodGroup/g", "Pod/p0", "Pod/p1", "Pod/p2", "Pod/p3"]


def test_verdict_contradicted_before_it_settled_is_never_published() -> None:
    world = gang_world()
    world.verdict_publisher.gang_decided(G, FEW)
    world.after(0.5)
    world.verdict_publisher.gang_decided(G, None)
    assert world.after(10) == []
    assert world.recorded.told == []
    assert world.verdict_publisher.told_verdict(G) is None


def test_members_that_arrive_one_by_one_cause_one_event() -> None:
    world = gang_world(members=0)
    for number in range(3):
        world.state.apply(PodUpdated(pod(f"p{number}")))
        world.verdict_publisher.gang_decided(G, Verdict("NotEnoughMembers", f"{number + 1} of 5 members"))
        assert world.after(0.5) == []
    assert world.after(2) == [(uid, "3 of 5 members") for uid in ALL]


def test_verdict_that_never_settles_is_published_all_the_same() -> None:
    """A busy cluster changes the counts all the time; that must not hide the reason."""
    world = gang_world()
    told = []
    for number in range(40):
        world.verdict_publisher.gang_decided(G, Verdict("NotEnoughResources", f"{number} nodes"))
        told += world.after(0.1)
    assert len(told) == 3


def test_unchanged_verdict_of_every_cycle_is_published_once() -> None:
    world = gang_world()
    told = []
    for _ in range(100):
        world.verdict_publisher.gang_decided(G, FULL)
        told += world.after(0.1)
    assert len(told) == 3
    assert len(world.recorded.events) == 4
    assert world.statuses == [G]


def test_two_alternating_verdicts_are_not_published_at_every_change() -> None:
    world = gang_world()
    tellings = 0
    for number in range(600):
        world.verdict_publisher.gang_decided(G, FULL if number % 2 else FULLER)
        tellings += len(world.after(0.1)) // 3
    assert tellings <= 60 / 5 + 1


def test_changed_reason_is_published_soon_and_changed_counts_later() -> None:
    world = gang_world()
    world.verdict_publisher.gang_decided(G, FULL)
    world.after(1)
    world.verdict_publisher.gang_decided(G, FULLER)
    assert world.after(2) == []
    assert world.after(4) == [(uid, FULLER.message) for uid in ALL]
    world.verdict_publisher.gang_decided(G, FEW)
    assert world.after(1.5) == [(uid, FEW.message) for uid in ALL]


def test_new_member_gets_the_verdict_of_its_gang() -> None:
    world = gang_world()
    world.verdict_publisher.gang_decided(G, FULL)
    world.after(1)
    world.state.apply(PodUpdated(pod("p9")))
    world.verdict_publisher.gang_decided(G, FULL)
    assert ("uid-p9", FULL.message) in world.after(1)


def test_gated_members_and_those_of_other_schedulers_get_no_verdict() -> None:
    world = gang_world()
    world.state.apply(PodUpdated(pod("gated", gated=True)))
    world.state.apply(PodUpdated(pod("foreign", scheduler="default-scheduler")))
    world.state.apply(PodUpdated(pod("bound", node="n1")))
    world.verdict_publisher.gang_decided(G, FULL)
    assert [uid for uid, _ in world.after(1)] == ALL


def test_status_of_a_group_is_derived_again_when_its_verdict_is_withdrawn() -> None:
    """No other event is needed: a lowered minimum makes a gang whole without a binding."""
    world = gang_world()
    world.verdict_publisher.gang_decided(G, FULL)
    world.after(1)
    assert world.verdict_publisher.told_verdict(G) is FULL
    world.verdict_publisher.gang_decided(G, None)
    assert world.statuses == [G, G]
    assert world.verdict_publisher.told_verdict(G) is None


def test_verdict_is_dropped_with_the_last_waiting_member() -> None:
    world = gang_world()
    world.verdict_publisher.gang_decided(G, FULL)
    world.after(1)
    for uid in ALL:
        world.state.apply(PodRemoved(uid))
    assert world.verdict_publisher.told_verdict(G) is None


def test_group_without_pods_gets_the_verdict_that_it_waits_for_its_turn() -> None:
    world = gang_world(members=0, admission=True, admitted=False)
    world.verdict_publisher.gang_decided(G, TURN)
    assert world.after(1) == []
    assert world.verdict_publisher.told_verdict(G) is TURN
    assert world.recorded.told == [("PodGroup/g", "AwaitingAdmission")]


def test_group_without_pods_gets_the_verdict_of_its_queue() -> None:
    world = gang_world(members=0, admission=True, admitted=False)
    world.verdict_publisher.gang_decided(G, NO_QUEUE)
    world.after(1)
    assert world.verdict_publisher.told_verdict(G) is NO_QUEUE
    assert world.statuses == [G]
    assert world.recorded.events == [("PodGroup/g", "QueueNotFound", NO_QUEUE.message)]


def test_group_that_cannot_have_pods_yet_gets_no_verdict_about_missing_members() -> None:
    world = gang_world(members=0, admission=True, admitted=False)
    world.verdict_publisher.gang_decided(G, FEW)
    world.after(5)
    assert world.recorded.told == []


def test_group_that_is_not_admitted_has_one_event_per_reason_whatever_the_amounts() -> None:
    world = gang_world(members=0, admission=True, admitted=False)

    def refused(words: str, plugin: str = "overcommit", *objects: NamedObject) -> list[str]:
        verdict = Verdict("AwaitingAdmission", words, unschedulable=False, plugin=plugin, objects=objects)
        world.recorded.events.clear()
        world.verdict_publisher.gang_decided(G, verdict)
        world.after(200)
        assert world.verdict_publisher.told_verdict(G) is verdict
        return [about for about, _ in world.recorded.told]

    assert refused("it asks for 12 cpu and 9300m may still be promised") == ["PodGroup/g"]
    assert refused("it asks for 12 cpu and 9200m may still be promised") == []
    assert refused("it asks for 12 cpu and 10.5 may still be promised") == []
    world.state.apply(PodUpdated(pod("p0")))
    assert refused("it asks for 12 cpu and 9 may still be promised") == ["Pod/p0"]
    assert refused("it is full", "proportion", NamedObject("Queue", "q-1")) == ["PodGroup/g", "Pod/p0"]
    assert refused("it is full", "proportion", NamedObject("Queue", "q-2")) == ["PodGroup/g", "Pod/p0"]
    assert refused("it asks for 12 cpu and 9 may still be promised") == ["PodGroup/g", "Pod/p0"]


def test_single_pods_get_their_verdicts_one_by_one() -> None:
    world = World(state_of(pod("a", ""), pod("b", "")))
    world.verdict_publisher.pod_decided("uid-a", FULL)
    world.verdict_publisher.pod_decided("uid-b", FULL)
    assert world.after(1) == [("uid-a", FULL.message), ("uid-b", FULL.message)]
    assert world.recorded.told == [("Pod/a", "FailedScheduling"), ("Pod/b", "FailedScheduling")]
    world.verdict_publisher.pod_decided("uid-a", FULL)
    assert world.after(100) == []


def test_pod_placed_before_publication_gets_no_verdict() -> None:
    world = World(state_of(pod("a", "")))
    world.verdict_publisher.pod_decided("uid-a", FULL)
    world.state.apply(PodUpdated(pod("a", "", node="n1")))
    assert world.after(1) == []


def test_members_above_the_minimum_share_one_event() -> None:
    world = gang_world()
    for uid in ALL:
        world.verdict_publisher.pod_decided(uid, FULL)
    assert len(world.after(1)) == 3
    assert world.recorded.told == [("Pod/p0", "FailedScheduling")]
    assert "3 pods above the minimum" in world.recorded.events[0][2]


def test_verdict_of_a_gang_applies_to_its_surplus_too() -> None:
    """A whole gang loses a member: from now on its surplus waits for the same reason as the gang."""
    world = gang_world()
    world.verdict_publisher.pod_decided("uid-p2", FULL)
    world.verdict_publisher.gang_decided(G, FEW)
    assert world.after(5) == [(uid, FEW.message) for uid in ALL]


@pytest.mark.parametrize("end", ["removed", "withdrawn"])
def test_deleted_units_are_forgotten(end: str) -> None:
    world = gang_world()
    world.verdict_publisher.gang_decided(G, FULL)
    for uid in ALL:
        world.verdict_publisher.pod_decided(uid, FULL)
    world.after(1)
    if end == "withdrawn":
        world.verdict_publisher.gang_decided(G, None)
        for uid in ALL:
            world.verdict_publisher.pod_decided(uid, None)
    else:
        for uid in ALL:
            world.state.apply(PodRemoved(uid))
            world.verdict_publisher.forget_pod(uid)
        world.state.apply(GangRemoved(G))
        world.verdict_publisher.forget_gang(G)
    assert len(world.verdict_publisher) == 0
    assert world.after(500) == []
    assert world.verdict_publisher.publish_due() is None


@pytest.mark.parametrize("code", ["PodGroupNotFound", "OwnerNotFound"])
def test_missing_object_that_appears_within_seconds_is_no_warning(code: str) -> None:
    world = gang_world()
    world.verdict_publisher.gang_decided(G, Verdict(code, "not found"))
    assert world.after(4.5) == []
    world.verdict_publisher.gang_decided(G, None)
    assert world.after(60) == []
    assert world.recorded.told == []


@pytest.mark.parametrize("code", ["PodGroupNotFound", "OwnerNotFound"])
def test_missing_object_is_reported_after_some_seconds(code: str) -> None:
    world = gang_world()
    world.verdict_publisher.gang_decided(G, Verdict(code, "not found"))
    assert world.after(6) == [(uid, "not found") for uid in ALL]
    assert world.recorded.told


def test_pod_group_that_is_generated_later_gets_the_event_of_its_gang() -> None:
    gang = Gang(G, min_member=3)
    world = World(state_of(*(pod(f"p{number}") for number in range(3)), gang=gang))
    world.verdict_publisher.gang_decided(G, FULL)
    world.after(1)
    assert ("PodGroup/g", "Unschedulable") not in world.recorded.told
    members = len(world.recorded.told)
    world.state.apply(GangUpdated(Gang(G, source=REF, min_member=3)))
    for _ in range(2):
        world.verdict_publisher.gang_touched(G)
        world.after(1)
    assert world.recorded.told[members:] == [("PodGroup/g", "Unschedulable")]
