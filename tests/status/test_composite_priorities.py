"""Composites whose groups have different priorities: one warning that names the priority that applies."""

from __future__ import annotations

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.model.composite import Composite
from phalanx.model.events import CompositeUpdated, GangUpdated
from phalanx.model.gang import Gang, GangKey, GroupRef
from phalanx.status.warnings.composite_priorities import CompositePriorities


def ref(kind: str, name: str) -> GroupRef:
    return GroupRef("scheduling.k8s.io", "v1alpha3", kind, f"{kind.lower()}s", "ns", name, f"uid-{name}")


class World:
    """A tree `top` with the composite `middle` and gangs."""

    def __init__(self, *, ours: bool = True) -> None:
        self.state = ClusterState()
        self.priorities = CompositePriorities(self.state, lambda key: ours)

    def composite(self, name: str, priority: int | None = None, parent: str = "") -> None:
        key = GangKey("ns", name)
        above = GangKey("ns", parent) if parent else None
        spec = Composite(key, ref("CompositePodGroup", name), parent=above, priority=priority)
        self.state.apply(CompositeUpdated(spec))

    def gang(self, name: str, priority: int | None, composite: str = "top") -> None:
        key = GangKey("ns", name)
        self.state.apply(GangUpdated(Gang(key, priority=priority, composite=GangKey("ns", composite))))
        self.priorities.touch(key)

    def warnings(self) -> list[tuple[str, str]]:
        return [(found.about.name, found.message) for found in self.priorities.new_warnings()]


def test_different_priorities_are_reported_once_on_the_topmost_composite() -> None:
    world = World()
    world.composite("top", 100)
    world.composite("middle", 50, parent="top")
    world.gang("a", 100)
    world.gang("b", 50, "middle")
    ((about, text),) = world.warnings()
    assert about == "top"
    assert text == (
        "its tree states 2 priorities (CompositePodGroup top: 100, CompositePodGroup middle: 50); the topmost "
        "priority applies to everything below it; state one priority in the whole tree"
    )
    world.gang("a", 100)
    assert world.warnings() == []


def test_priorities_of_groups_alone_are_reported_as_their_own() -> None:
    world = World()
    world.composite("top")
    world.gang("a", 1)
    world.gang("b", 2)
    ((_, text),) = world.warnings()
    assert "PodGroup a: 1, PodGroup b: 2" in text
    assert "each group is ordered by its own priority" in text


def test_one_priority_and_corrected_ones_are_no_warning() -> None:
    world = World()
    world.composite("top", 5)
    world.gang("a", 5)
    world.gang("b", None)
    assert world.warnings() == []
    world.gang("b", 6)
    assert len(world.warnings()) == 1
    world.gang("b", 5)
    assert world.warnings() == []
    world.gang("b", 6)
    assert len(world.warnings()) == 1


def test_tree_of_another_scheduler_is_ignored() -> None:
    world = World(ours=False)
    world.composite("top", 5)
    world.gang("a", 6)
    assert world.warnings() == []


def test_many_priorities_are_named_in_part() -> None:
    world = World()
    world.composite("top", 0)
    for number in range(9):
        world.gang(f"g{number}", number)
    ((_, text),) = world.warnings()
    assert "states 9 priorities" in text
    assert text.count("PodGroup g") <= 4
    assert msgspec.json.encode(text)
