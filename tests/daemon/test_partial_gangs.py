"""Gangs below their quorum after failed bindings: preserved or released, as the policy states."""

from __future__ import annotations

from typing import cast

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.daemon.controllers.partial_gangs import PartialGangs
from phalanx.kube.events import EventRecorder
from phalanx.model.decisions import Evict, EvictionReason
from phalanx.model.events import PodRemoved, PodUpdated
from phalanx.model.gang import Gang
from phalanx.model.pod import MemberState, Pod, PodPhase
from phalanx.status.event_publisher import EventPublisher
from tests.cluster_content import MARK, REF, G, Recorded, pod, state_of


class World:
    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.recorded = Recorded()
        self.evictions: list[Evict] = []
        self.now = 1000.0
        event_publisher = EventPublisher(cast(EventRecorder, self.recorded), state)
        self.partial = PartialGangs(state, event_publisher, self.evictions.extend, lambda: self.now)

    def check(self, policy: str, at: float) -> list[str]:
        """Return the names of the evicted pods."""
        self.now = at
        self.evictions.clear()
        self.partial.check(policy)
        return [evict.name for evict in self.evictions]


def cut_off(timeout: int | None = 60, *more: Pod) -> ClusterState:
    """A plan for three of which one is running and one bound; the third could not be bound."""
    return state_of(
        pod("p0", node="n1", mark=MARK, phase=PodPhase.RUNNING),
        pod("p1", node="n1", mark=MARK),
        pod("p2"),
        *more,
        gang=Gang(G, source=REF, min_member=3, timeout=timeout),
    )


@pytest.fixture
def world() -> World:
    return World(cut_off())


def test_nothing_happens_before_the_timeout(world: World) -> None:
    assert world.check("release", 1059) == []
    assert world.recorded.events == []


def test_keep_leaves_the_members_and_says_so_once(world: World) -> None:
    for at in (1060, 1061, 2000):
        assert world.check("keep", at) == []
    assert world.recorded.told == [("PodGroup/g", "ScheduleTimeout"), ("Pod/p2", "ScheduleTimeout")]
    assert (
        "only 2 of the 3 planned pods of gang ns/g bound at its scheduling timeout; they are kept"
        in world.recorded.events[0][2]
    )


def test_release_evicts_the_members(world: World) -> None:
    assert world.check("release", 1060) == ["p0", "p1"]
    first = world.evictions[0]
    assert (first.uid, first.node, first.gang, first.reason) == ("uid-p0", "n1", G, EvictionReason.RESCHEDULED)
    assert "could not be bound in time" in first.message
    assert len({evict.cause for evict in world.evictions}) == 1
    assert world.state.gangs[G].count(MemberState.TERMINATING) == 2
    assert world.check("release", 1061) == []


def test_timeout_defaults_to_ten_minutes() -> None:
    world = World(cut_off(timeout=None))
    world.check("keep", 1599)
    assert world.recorded.events == []
    world.check("keep", 1600)
    assert world.recorded.told[0] == ("PodGroup/g", "ScheduleTimeout")


def test_a_gang_that_is_whole_is_left_alone() -> None:
    world = World(cut_off(60))
    world.state.apply(PodUpdated(pod("p2", node="n1", mark=MARK)))
    assert world.check("release", 5000) == []


def test_surplus_that_waits_is_no_broken_gang() -> None:
    world = World(cut_off(60, pod("p3")))
    world.state.apply(PodUpdated(pod("p2", node="n1", mark=MARK)))
    assert world.check("release", 5000) == []


def test_members_that_may_not_be_evicted_stay_and_are_not_asked_again(world: World) -> None:
    world.check("release", 1060)
    for evict in world.evictions:
        world.state.pods.eviction_refused(evict.uid, 1120)
    assert world.state.gangs[G].counts().active == 2
    assert world.check("release", 1200) == []


def test_a_plan_that_was_complete_once_was_not_cut_off() -> None:
    """A member that is lost later, and its replacement from the same second, are the match policy's business."""
    world = World(cut_off(60))
    world.state.apply(PodUpdated(pod("p2", node="n1", mark=MARK)))
    world.state.apply(PodRemoved("uid-p1"))
    world.state.apply(PodUpdated(pod("p4", created=MARK.time)))
    assert world.check("release", 5000) == []
