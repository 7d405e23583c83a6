"""Transition table of pods: listed transitions are carried out, all other ones are refused or ignored; the story
records them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cluster.pods.nominations import Nomination
from phalanx.cluster.pods.states import IGNORED, InvalidTransitionError, PodEvent, PodState, state_of_record
from phalanx.cluster.pods.story import PER_POD
from phalanx.cluster.pods.table import TRANSITIONS
from phalanx.cluster.state import ClusterState
from phalanx.model.events import GangUpdated, NodeRemoved, NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.selectors import HostPort
from phalanx.scheduling.gangs.priorities import Priorities

from .audit import audit

POD = Pod("ns", "p", "u", PodClass(requests=(("cpu", 100),)), scheduler="phalanx", gang="g")
SEEN: dict[PodEvent, dict[str, object]] = {
    PodEvent.SEEN_PENDING: {},
    PodEvent.SEEN_GATED: {"gated": True},
    PodEvent.SEEN_OTHER_SCHEDULER: {"scheduler": "other"},
    PodEvent.SEEN_BOUND: {"node": "n"},
    PodEvent.SEEN_RUNNING: {"node": "n", "phase": PodPhase.RUNNING},
    PodEvent.SEEN_SUCCEEDED: {"node": "n", "phase": PodPhase.SUCCEEDED},
    PodEvent.SEEN_FAILED: {"node": "n", "phase": PodPhase.FAILED},
    PodEvent.SEEN_TERMINATING: {"node": "n", "terminating": True},
}


class World:
    """One node, one gang of one pod; `happens` applies an event to the pod."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.state.apply(NodeUpdated(Node("n", allocatable=(("cpu", 1000), ("pods", 10)))))
        self.state.apply(GangUpdated(Gang(GangKey("ns", "g"))))

    @property
    def where(self) -> PodState:
        record = self.state.pods.get("u")
        return state_of_record(record) if record is not None else PodState.GONE

    def happens(self, event: PodEvent) -> None:
        pods = self.state.pods
        if event in SEEN:
            self.state.apply(PodUpdated(msgspec.structs.replace(POD, **SEEN[event])))
            return
        record = pods.get("u")
        if event is PodEvent.DELETED or record is None:
            self.state.apply(PodRemoved("u"))
            return
        decisions: dict[PodEvent, Callable[[], object]] = {
            PodEvent.NOMINATE: lambda: pods.nominate(record, 0, Nomination()),
            PodEvent.CANCEL_NOMINATION: lambda: pods.cancel_nomination(record),
            PodEvent.ASSUME: self.place,
            PodEvent.BINDING_FAILED: lambda: pods.binding_failed("u"),
            PodEvent.EVICT: lambda: pods.mark_evicting(record),
            PodEvent.EVICTION_REFUSED: lambda: pods.eviction_refused("u", 5.0),
        }
        decisions[event]()

    def place(self) -> None:
        record = self.state.pods["u"]
        if (self.where, PodEvent.ASSUME) not in TRANSITIONS:
            self.state.pods.assume(record, 0, None)
        transaction = self.state.transaction()
        transaction.lift([record])
        transaction.place(record.pod_class, [record], [0])
        for each, row in transaction.commit():
            self.state.pods.assume(each, row, None)


WAYS = {
    PodState.PENDING: [PodEvent.SEEN_PENDING],
    PodState.NOMINATED: [PodEvent.SEEN_PENDING, PodEvent.NOMINATE],
    PodState.GATED: [PodEvent.SEEN_GATED],
    PodState.OTHER_SCHEDULER: [PodEvent.SEEN_OTHER_SCHEDULER],
    PodState.ASSUMED: [PodEvent.SEEN_PENDING, PodEvent.ASSUME],
    PodState.BOUND: [PodEvent.SEEN_BOUND],
    PodState.RUNNING: [PodEvent.SEEN_RUNNING],
    PodState.EVICTING: [PodEvent.SEEN_RUNNING, PodEvent.EVICT],
    PodState.TERMINATING: [PodEvent.SEEN_TERMINATING],
    PodState.SUCCEEDED: [PodEvent.SEEN_SUCCEEDED],
    PodState.FAILED: [PodEvent.SEEN_FAILED],
}


@pytest.mark.parametrize("event", PodEvent, ids=lambda event: event.name)
@pytest.mark.parametrize("state", WAYS, ids=lambda state: state.name)
def test_every_pair_of_state_and_event_is_in_the_table_or_refused_or_ignored(
    state: PodState, event: PodEvent
) -> None:
    world = World()
    for step in WAYS[state]:
        world.happens(step)
    assert world.where is state
    if (state, event) in TRANSITIONS:
        world.happens(event)
    elif event in IGNORED:
        world.happens(event)
        assert world.where is state
    else:
        with pytest.raises(InvalidTransitionError, match=f"pod ns/p is {state.name.lower()}"):
            world.happens(event)
        assert world.where is state
    audit(world.state)


@given(st.lists(st.sampled_from(PodEvent), max_size=30))
def test_random_walk_preserves_every_index_and_its_story_is_one_path(events: list[PodEvent]) -> None:
    world = World()
    for number, event in enumerate(events):
        world.state.pods.stories.now = float(number)
        before = world.where
        try:
            world.happens(event)
        except InvalidTransitionError:
            assert world.where is before
        audit(world.state)
    story = world.state.pods.story("u")
    assert len(story) <= PER_POD
    assert all(first.after is then.before and first.time < then.time for first, then in pairwise(story))
    assert not story or story[-1].after is world.where
    assert world.state.pods.story_of_gang(GangKey("ns", "g")) == (
        story if "u" in world.state.pods and gang(world) else []
    )


def gang(world: World) -> bool:
    return world.state.pods["u"].gang is not None


def test_story_has_the_cycle_of_a_decision_and_ends_with_the_pod() -> None:
    world = World()
    stories = world.state.pods.stories
    world.happens(PodEvent.SEEN_PENDING)
    stories.now, stories.cycle = 10.0, "c1"
    world.happens(PodEvent.ASSUME)
    stories.now = 12.0
    world.happens(PodEvent.SEEN_RUNNING)
    assert [(each.time, each.cause, each.event.name, each.after.name) for each in world.state.pods.story("u")] == [
        (10.0, "c1", "ASSUME", "ASSUMED"),
        (12.0, "", "SEEN_RUNNING", "RUNNING"),
    ]
    world.happens(PodEvent.DELETED)
    world.happens(PodEvent.SEEN_PENDING)
    assert world.state.pods.story("u") == []


def test_late_binding_to_a_deleted_node_does_not_move_pods_of_other_nodes() -> None:
    world = World()
    state = world.state
    state.apply(NodeUpdated(Node("other", allocatable=(("cpu", 1000), ("pods", 10)))))
    state.apply(PodUpdated(msgspec.structs.replace(POD, name="q", uid="v", gang="", node="other")))
    for event in WAYS[PodState.ASSUMED]:
        world.happens(event)
    state.apply(NodeRemoved("n"))
    assert len(state.victim_table().rows) == 1
    world.happens(PodEvent.SEEN_BOUND)
    assert len(state.victim_table().rows) == 1
    audit(state)


def test_new_resource_of_a_binding_is_charged() -> None:
    """A resize during the binding is one cause."""
    world = World()
    for event in WAYS[PodState.ASSUMED]:
        world.happens(event)
    world.state.apply(PodUpdated(msgspec.structs.replace(POD, node="n", usage=(("example.com/new", 3),))))
    audit(world.state)


def test_host_ports_are_held_while_a_pod_is_being_bound() -> None:
    world = World()
    for event in WAYS[PodState.ASSUMED]:
        world.happens(event)
    for ports in ((HostPort(80),), (HostPort(81),), ()):
        pod_class = msgspec.structs.replace(POD.pod_class, host_ports=ports)
        world.state.apply(PodUpdated(msgspec.structs.replace(POD, pod_class=pod_class)))
        assert world.where is PodState.ASSUMED
        audit(world.state)


def test_highest_priority_of_a_gang_follows_a_changed_member() -> None:
    state = ClusterState()
    state.apply(GangUpdated(Gang(GangKey("ns", "g"), min_member=1)))
    for priority in (5, 9, 3):
        state.apply(PodUpdated(msgspec.structs.replace(POD, priority=priority)))
        audit(state)
        assert Priorities(state.gangs.composites).own(state.gangs[GangKey("ns", "g")]) == priority


def test_facts_about_pending_members_follow_a_changed_member() -> None:
    state = ClusterState()
    state.apply(GangUpdated(Gang(GangKey("ns", "g"), min_member=1)))
    for problem in ("", "unknown constraint", ""):
        state.apply(PodUpdated(msgspec.structs.replace(POD, problem=problem)))
        record, gang = state.pods[POD.uid], state.gangs[GangKey("ns", "g")]
        assert gang.pending_facts.unreadable == ((record,) if problem else ())
        assert gang.pending_facts.classes == (record.pod_class,)
    state.apply(PodRemoved(POD.uid))
    assert gang.pending_facts.classes == ()
