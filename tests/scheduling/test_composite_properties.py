"""Properties of composites in random histories: quorums of quorums start whole, and parking only saves time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from phalanx.model.decisions import Plan
from phalanx.model.gang import GangKey
from phalanx.scheduling.gang_placement.composite_tree import CompositeTree, composite_tree_of

from ..extent import examples
from .scenario import NAMESPACE
from .test_composites import World

STEPS = 40
COMPOSITES = ["top", "left", "right", "lone"]
GROUPS = ["a", "b", "c", "d", "e"]
Step = Callable[[World], object]


class Story:
    """Random steps, drawn one after the other and replayable on several worlds."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.number = 0

    def step(self) -> list[Step]:
        draw = self.draw
        self.number += 1
        match draw.choice(["node", "no node", "composite", "no composite", "group", "pods", "pods", "gone", "job"]):
            case "node":
                name, gpus = f"n{draw.randrange(4)}", draw.randint(1, 6)
                return [lambda world: world.node(name, gpu=gpus)]
            case "no node":
                name = f"n{draw.randrange(4)}"
                return [lambda world: world.no_node(name)]
            case "composite":
                name, least = draw.choice(COMPOSITES), draw.randint(0, 2)
                parent = draw.choice(["", "", "top", "left"])
                priority = draw.choice([None, None, 5])
                return [lambda world: world.composite(name, least, parent, priority=priority)]
            case "no composite":
                name = draw.choice(COMPOSITES)
                return [lambda world: world.no_composite(name)]
            case "group":
                name, parent, least = draw.choice(GROUPS), draw.choice(COMPOSITES), draw.randint(1, 3)
                return [lambda world: world.group(name, 0, parent, minimum=least)]
            case "pods":
                gang, gpus = draw.choice(GROUPS), draw.randint(1, 2)
                names = [f"{gang}-{self.number}-{index}" for index in range(draw.randint(1, 3))]
                return [lambda world, name=name: world.pod(name, gang=gang, gpu=gpus) for name in names]  # type: ignore[misc]
            case "gone":
                at = draw.random()
                return [lambda world: _vanish(world, at)]
        name = f"job{self.number}"
        members = draw.randint(1, 3)
        return [lambda world: world.job(name, members, gpu=1)]


def _vanish(world: World, at: float) -> None:
    names = sorted(world.state.pods)
    if names:
        world.gone(names[int(at * len(names))])


def forest(world: World) -> dict[GangKey, CompositeTree]:
    """Return the valid trees."""
    composites = world.state.gangs.composites
    roots = {composites.root_of(key) for key in composites.specs}
    return {root: composite_tree_of(composites, root) for root in roots if composites.fault(root) is None}


def holds(world: World, tree: CompositeTree, bound: Counter[GangKey]) -> bool:
    """Return whether enough of the composite is placed, this plan's bindings included."""
    count = 0
    for child in tree.children:
        if isinstance(child, CompositeTree):
            count += holds(world, child, bound)
        else:
            assert child.spec is not None
            count += child.counts().active >= child.spec.min_member
    return count >= max(1, tree.least)


def check(world: World, plan: Plan) -> None:
    bound = Counter(bind.gang for bind in plan.binds if bind.gang is not None)
    trees = forest(world)
    composites = world.state.gangs.composites
    for key in bound:
        gang = world.state.gangs[key]
        root = composites.root(gang)
        if root is None:
            continue
        assert root in trees, f"{key} was placed although something is wrong with its tree"
        assert gang.spec is not None
        assert gang.counts().active >= gang.spec.min_member, f"{key} started in part"
        if bound[key] >= gang.spec.min_member:  # its quorum starts in this plan
            for tree in trees[root].trees():
                if any(child is gang for child in tree.gangs()):
                    assert holds(world, tree, bound), f"{tree} started in part with {key}"


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(15)))
def test_trees_start_whole_and_the_scheduler_comes_to_rest(seed: int) -> None:
    world, story = World(), Story(seed)
    for _ in range(STEPS):
        for step in story.step():
            step(world)
        check(world, world.cycle())
        world.work()
        world.confirm()
        world.work()
        plan = world.cycle()
        assert plan == Plan(plan.cycle), "something was done or said although nothing had changed"


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(15)))
def test_parking_does_not_change_decisions_with_composites(seed: int) -> None:
    lazy, eager, story = World(), World(), Story(1000 + seed)
    for _ in range(STEPS):
        for step in story.step():
            step(lazy)
            step(eager)
        lazy.work()
        eager.scheduler.use(eager.policy)
        eager.work()
        assert {name: lazy.where(name) for name in lazy.placed()} == {
            name: eager.where(name) for name in eager.placed()
        }
        assert _said(lazy) == _said(eager)


def _said(world: World) -> dict[str, str]:
    told = {
        key.name: gang.last_verdict[0] for key, gang in world.state.gangs.items() if gang.last_verdict is not None
    }
    assert all(key.namespace == NAMESPACE for key in world.state.gangs)
    return {name: f"{verdict.message} -> {verdict.change}" for name, verdict in told.items() if verdict is not None}
