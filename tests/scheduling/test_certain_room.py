"""Pods of several classes are sorted by class only as far as each of them certainly fits."""

from __future__ import annotations

import random

import pytest

from phalanx.cluster.classes import ClassRecord
from phalanx.model.pod import PodClass

from ..extent import examples
from .scenario import Scenario, amounts


def world_and_classes(draw: random.Random) -> tuple[Scenario, list[ClassRecord]]:
    """Return a cluster of some nodes in use, and classes that ask for CPUs and sometimes for GPUs."""
    world = Scenario()
    for number in range(draw.randint(1, 4)):
        world.node(f"n{number}", cpu=draw.randint(1, 12), gpu=draw.choice([0, 0, 4]))
        world.pod(f"used{number}", node=f"n{number}", cpu=draw.randint(0, 1))
    world.run()
    requests = [amounts(cpu=draw.randint(1, 5), gpu=draw.choice([0, 0, 1, 3])) for _ in range(draw.randint(1, 4))]
    classes = [world.state.classes.record(PodClass(requests=request)) for request in requests]
    world.state.nodes.widen()
    return world, classes


def free_amounts(world: Scenario) -> list[list[int]]:
    """Return the idle amounts by row, then by resource."""
    idle: list[list[int]] = world.state.nodes.idle[:, : world.state.nodes.extent].T.tolist()
    return idle


def fits(idle: list[int], pod_class: ClassRecord) -> bool:
    return all(idle[column] >= amount for column, amount in pod_class.demand)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_each_class_fits_after_any_placements_of_fewer_pods_than_its_certain_count(seed: int) -> None:
    draw = random.Random(seed)
    world, classes = world_and_classes(draw)
    counts = world.scheduler.placer.certain_counts(classes, 10**6)
    for pod_class, count in zip(classes, counts, strict=True):
        for _ in range(8):
            idle = free_amounts(world)
            for _ in range(count - 1):
                # Placements that hurt the class the most are on rows where it fits.
                options = [(row, other) for row in idle for other in classes if fits(row, other)]
                options = [option for option in options if fits(option[0], pod_class)] or options
                if not options:
                    break
                row, other = draw.choice(options)
                for column, amount in other.demand:
                    row[column] -= amount
            assert not count or any(fits(row, pod_class) for row in idle)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_count_of_a_single_class_is_the_number_of_copies_that_fit(seed: int) -> None:
    world, classes = world_and_classes(random.Random(seed))
    placer = world.scheduler.placer
    for pod_class in classes:
        assert placer.certain_counts([pod_class], 10**6) == [placer.total_copies(pod_class)]
