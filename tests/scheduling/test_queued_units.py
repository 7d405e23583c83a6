"""Waiting units: after any change the incremental queue equals one that is rebuilt from all units."""

from __future__ import annotations

import random

import msgspec
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.model.composite import Composite
from phalanx.model.events import (
    CompositeRemoved,
    CompositeUpdated,
    GangRemoved,
    GangUpdated,
    PodRemoved,
    PodUpdated,
)
from phalanx.model.gang import Gang, GangKey, GroupRef
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unit_index import UnitIndex

NAMES = "abcdef"
EVENTS = ["declared", "declared", "tied", "in a tree", "withdrawn", "pod", "pod", "bound", "gone", "tree"]
STEPS = 60
SEEDS = 60


def group_ref(top: GangKey) -> GroupRef:
    return GroupRef(
        "scheduling.k8s.io", "v1alpha3", "CompositePodGroup", "compositepodgroups", top.namespace, top.name, "w"
    )


def key(name: str) -> GangKey:
    return GangKey("n", name)


class GeneralIndex(UnitIndex):
    """Reference without the short path for gangs outside of gang groups."""

    def _stays_alone(self, key: GangKey) -> bool:
        return False


def seen(unit: QueuedUnit) -> tuple[object, ...]:
    return unit.key, [gang.key for gang in unit.gangs], unit.missing, unit.composite, unit.oversized_group


class Story:
    """Change a state at random."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.state = ClusterState(("phalanx",))
        self.number = 0

    def step(self) -> None:
        draw, state = self.draw, self.state
        name = draw.choice(NAMES)
        match draw.choice(
            ["declared", "declared", "tied", "in a tree", "withdrawn", "pod", "pod", "bound", "gone", "tree"]
        ):
            case "declared":
                waits = draw.random() < 0.2
                spec = Gang(key(name), uid=draw.choice("uv"), admission=waits, admitted=not waits)
                state.apply(GangUpdated(spec))
            case "tied":
                named = tuple(sorted(key(other) for other in draw.sample(NAMES, draw.randint(1, 3))))
                state.apply(GangUpdated(Gang(key(name), gang_group=named)))
            case "in a tree":
                state.apply(GangUpdated(Gang(key(name), composite=key(draw.choice("tu")))))
            case "tree":
                top = key(draw.choice("tu"))
                state.apply(
                    CompositeUpdated(Composite(top, group_ref(top)))
                    if draw.random() < 0.7
                    else CompositeRemoved(top)
                )
            case "withdrawn":
                state.apply(GangRemoved(key(name)))
            case "pod":
                self.number += 1
                gang = name if draw.random() < 0.8 else ""
                uid = f"p{self.number}"
                state.apply(PodUpdated(Pod("n", uid, uid, PodClass(), scheduler="phalanx", gang=gang)))
            case "bound" if state.pods:
                pod = state.pods[draw.choice(sorted(state.pods))].pod
                now = Pod(pod.namespace, pod.name, pod.uid, pod.pod_class, scheduler="phalanx", gang=pod.gang)
                phase = draw.choice([PodPhase.RUNNING, PodPhase.SUCCEEDED])
                state.apply(PodUpdated(msgspec.structs.replace(now, node="n1", phase=phase)))
            case "gone" if state.pods:
                state.apply(PodRemoved(draw.choice(sorted(state.pods))))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_incremental_queue_equals_a_rebuilt_queue_after_all_changes(seed: int) -> None:
    story = Story(seed)
    queue = SchedulingQueue(story.state)
    for _ in range(STEPS):
        for _ in range(story.draw.choice([1, 1, 3])):
            story.step()
        waiting = {unit.key: seen(unit) for unit in queue.all_units() if unit.pod is None}
        anew = GeneralIndex(story.state)
        anew.update(sorted(story.state.gangs))
        assert waiting == {
            unit: seen(found) for unit in anew.gang_groups() if (found := anew.unit(unit)) is not None
        }


@pytest.mark.parametrize("seed", range(SEEDS))
def test_changed_unit_is_active_until_it_was_tried(seed: int) -> None:
    """No unit is planned here: a unit with requests is offered again after each change of its own."""
    story = Story(seed)
    queue = SchedulingQueue(story.state)
    offered: dict[object, object] = {}
    for _ in range(STEPS):
        story.step()
        for unit in queue.pop_active(lambda demand, unit: 0):
            offered[unit.key] = _asks(unit)
        waiting = {unit.key: _asks(unit) for unit in queue.all_units()}
        assert {each: offered.get(each) for each in waiting} == waiting


def _asks(unit: QueuedUnit) -> object:
    return unit.pod and unit.pod.pod.uid, [(gang.spec, sorted(gang.pending)) for gang in unit.gangs], unit.missing
