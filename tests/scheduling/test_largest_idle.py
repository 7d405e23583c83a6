"""Largest idle amounts: a demand that is excluded fits on no node, at any moment of a random history."""

from __future__ import annotations

from random import Random

import pytest

from phalanx.model.events import NodeRemoved, NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass
from phalanx.scheduling.placement.largest_idle import LargestIdle

from .scenario import Scenario


@pytest.mark.parametrize(("seed", "nodes"), [(1, 1), (2, 5), (3, 300)])
def test_demand_that_is_excluded_fits_on_no_node(seed: int, nodes: int) -> None:
    random, world = Random(seed), Scenario()
    state = world.state
    state.apply(NodeUpdated(Node("n0", allocatable=(("cpu", 2000), ("example.com/chip", 1), ("pods", 9)))))
    largest, excluded = LargestIdle(state.nodes), 0
    classes = [
        state.classes.record(PodClass(requests=(("cpu", cpu), ("example.com/chip", chips))))
        for cpu, chips in ((1000, 0), (4000, 0), (9000, 1), (2000, 3))
    ]
    for number in range(400):
        name = f"n{random.randrange(nodes)}"
        match random.randrange(5):
            case 0:
                chips = random.choice((0, 2, 4))
                offered = (("cpu", random.choice((2000, 10_000))), ("example.com/chip", chips), ("pods", 9))
                state.apply(NodeUpdated(Node(name, allocatable=offered)))
            case 1 if number % 7 == 0:
                state.apply(NodeRemoved(name))
            case 2:
                state.apply(PodRemoved(f"p{random.randrange(number + 1)}"))
            case _:
                asked = (("cpu", 1000),)
                pod = Pod("ns", f"p{number}", f"p{number}", PodClass(requests=asked), asked, "phalanx", node=name)
                state.apply(PodUpdated(pod) if state.nodes.row(name) >= 0 else PodRemoved("none"))
        for pod_class in classes:
            fits = (state.nodes.idle[pod_class.columns] >= pod_class.amounts[:, None]).all(axis=0)
            if largest.lacks(pod_class.demand):
                excluded += 1
                assert not fits.any()
            elif nodes == 1:
                assert fits.any() or len(pod_class.demand) > 1
    assert excluded


def test_lacking_demand_is_found_again_once_a_node_has_its_amounts() -> None:
    world = Scenario().nodes(3, cpu=4).pod("large", cpu=8).settle()
    assert world.waiting() == ["large"]
    world.node("big", cpu=8).settle()
    assert world.state.pods["large"].assumed_node or world.state.pods["large"].pod.node == "big"
