"""Gangs that a former process was evicting when it ended."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.daemon.controllers.leftover_evictions import LeftoverEvictions
from phalanx.dialects.core import PodObject
from phalanx.dialects.pods.evictability import condemned_by
from phalanx.model.decisions import Evict, EvictionReason
from phalanx.model.events import PodRemoved, PodUpdated
from phalanx.model.eviction_condition import EVICTION, eviction_fields
from phalanx.model.gang import Gang
from phalanx.model.pod import MemberState, PodPhase
from tests.cluster_content import REF, G, pod, state_of


class World:
    """A gang of four that needs three; two of its members say that we evict them."""

    def __init__(self, condemned: str = "phalanx") -> None:
        members = [
            pod(f"p{number}", node="n1", phase=PodPhase.RUNNING, condemned=condemned if number < 2 else "")
            for number in range(4)
        ]
        self.state: ClusterState = state_of(*members, gang=Gang(G, source=REF, min_member=3))
        self.now = 1000.0
        self.evictions: list[Evict] = []
        self.withdrawn: list[str] = []
        self.leftovers = LeftoverEvictions(
            self.state, self.evictions.extend, lambda pod: self.withdrawn.append(pod.name), lambda: self.now
        )

    def lose(self, *names: str) -> None:
        for name in names:
            self.state.apply(PodRemoved(f"uid-{name}"))

    def says(
        self, name: str, fields: str = '{"scheduler":"phalanx"}', status: str = "True", reason: str = "Preempted"
    ) -> None:
        told = [
            {"type": "DisruptionTarget", "status": status, "reason": "PreemptionByScheduler", "message": "x"},
            {"type": EVICTION, "status": status, "reason": reason, "message": fields},
        ]
        seen = {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": {"conditions": told}}
        self.leftovers.pod_seen(msgspec.convert(seen, PodObject))

    def withdraws(self, at: float) -> list[str]:
        self.withdrawn.clear()
        self.check(at)
        return self.withdrawn

    def check(self, at: float) -> list[str]:
        self.now = at
        self.evictions.clear()
        self.leftovers.check()
        return [evict.name for evict in self.evictions]


def test_gang_below_quorum_loses_its_members_marked_for_eviction() -> None:
    world = World()
    world.lose("p2", "p3")
    assert world.check(1000) == []
    assert world.check(1006) == ["p0", "p1"]
    assert world.state.gangs[G].count(MemberState.TERMINATING) == 2
    assert world.check(1007) == []


def test_a_gang_that_has_its_quorum_is_left_alone() -> None:
    world = World()
    world.lose("p3")
    assert [world.check(at) for at in (1000, 1006, 1020)] == [[], [], []]


def test_a_gang_that_is_whole_again_in_time_is_left_alone() -> None:
    world = World()
    world.lose("p2", "p3")
    world.check(1000)
    world.state.apply(PodUpdated(pod("p9", node="n1", phase=PodPhase.RUNNING)))
    assert [world.check(at) for at in (1003, 1008, 1020)] == [[], [], []]


def test_pods_marked_by_another_scheduler_are_not_evicted() -> None:
    world = World(condemned="default-scheduler")
    world.lose("p2", "p3")
    assert [world.check(at) for at in (1000, 1006)] == [[], []]


def test_pod_whose_eviction_was_refused_is_not_evicted_again_at_once() -> None:
    world = World()
    world.lose("p2", "p3")
    world.check(1000)
    assert world.check(1006) == ["p0", "p1"]
    for name in ("p0", "p1"):
        world.state.pods.eviction_refused(f"uid-{name}", 1066)
    assert world.check(1010) == []


def test_pod_marked_for_eviction_and_not_evicted_gets_its_condition_reset() -> None:
    world = World()
    world.says("p0")
    world.says("p1", '{"scheduler":"default-scheduler"}')
    world.says("p2", status="False")
    assert [[*world.withdraws(at)] for at in (1000, 1004, 1005)] == [[], [], ["p0"]]
    # The word did not get through.
    assert [[*world.withdraws(at)] for at in (1006, 1010)] == [[], ["p0"]]
    world.says("p0", "", "False", "")
    assert world.withdraws(1020) == []


def test_pod_being_evicted_keeps_its_condition_until_the_eviction_is_refused() -> None:
    world = World()
    world.says("p0")
    world.check(1000)
    world.state.pods.mark_evicting(world.state.pods["uid-p0"])
    assert [[*world.withdraws(at)] for at in (1003, 1010, 1020)] == [[], [], []]
    world.state.pods.eviction_refused("uid-p0", 1080)
    assert [[*world.withdraws(at)] for at in (1021, 1024, 1025)] == [[], [], ["p0"]]


def test_member_whose_broken_gang_can_still_be_evicted_keeps_its_condition() -> None:
    world = World()
    world.says("p0")
    world.says("p1")
    assert world.withdraws(1000) == []
    world.lose("p2", "p3")
    assert [[*world.withdraws(at)] for at in (1003, 1004, 1005, 1030)] == [[], [], [], []]
    assert world.state.gangs[G].count(MemberState.TERMINATING) == 2


def test_deleted_pod_gets_no_condition() -> None:
    world = World()
    world.says("p0")
    world.check(1000)
    world.lose("p0")
    world.leftovers.pod_gone("uid-p0")
    assert world.withdraws(1010) == []


def test_remaining_members_are_evicted_for_the_reason_of_the_former_process() -> None:
    world = World()
    fields = eviction_fields(
        "phalanx", Evict("u", "ns", "p0", "n1", EvictionReason.RECLAIMED, "x) by (y", "gang ns/taker")
    )
    for name in ("p0", "p1"):
        world.says(name, fields, reason="Reclaimed")
    world.lose("p2", "p3")
    world.check(1000)
    world.check(1006)
    first = world.evictions[0]
    assert (first.reason, first.preemptor) == (EvictionReason.RECLAIMED, "gang ns/taker")
    assert first.message.startswith("x) by (y; ")


def test_condition_that_another_scheduler_wrote_since_is_not_ours() -> None:
    told = [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "lastTransitionTime": "2026-01-01T00:00:09Z",
        },
        {
            "type": EVICTION,
            "status": "True",
            "reason": "Preempted",
            "message": '{"scheduler":"phalanx"}',
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        },
    ]
    pod = msgspec.convert({"metadata": {"name": "p"}, "status": {"conditions": told}}, PodObject)
    assert condemned_by(pod) == ""


@pytest.mark.parametrize(
    ("reason", "fields"),
    [
        ("Preempted", "gone fishing"),
        ("Preempted", "{}"),
        ("Preempted", '{"scheduler": 7}'),
        ("Preempted", '{"scheduler": "phalanx", "why": "' + "x" * 40_000 + '"}'),
        ("Abducted", '{"scheduler":"phalanx"}'),
        ("", ""),
    ],
)
def test_fields_that_we_cannot_have_written_are_no_reason(reason: str, fields: str) -> None:
    world = World()
    for name in ("p0", "p1"):
        world.says(name, fields, reason=reason)
    world.lose("p2", "p3")
    world.check(1000)
    world.check(1006)
    assert {(each.reason, each.preemptor) for each in world.evictions} == {(EvictionReason.REVOKED, "")}
