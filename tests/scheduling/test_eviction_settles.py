"""Termination of evictions on random clusters: no two units reclaim from each other forever."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from ..extent import examples
from .scenario import Scenario

SEEDS = range(examples(24))
ALL_SEEDS = range(24)
ARRIVALS = 14
_POLICY = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers: [{{plugins: [{{name: priority}}, {{name: gang}}]}},
        {{plugins: [{{name: predicates}}, {{name: {plugin}}}, {{name: nodeorder}}]}}]
"""
_PLUGINS = [
    "capacity",
    "capacity, arguments: {ancestorReclaimLevel: 0}",
    "capacity, arguments: {ancestorReclaimLevel: 2}",
    "proportion",
]


class Crowd:
    """A full cluster with a tree of queues, some with deserved amounts, and a stream of new units."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.scenario = Scenario(_POLICY.format(plugin=_PLUGINS[seed % len(_PLUGINS)]))
        self.scenario.nodes(3, cpu=6, gpu=3)
        self.leaves: list[str] = []
        parents_only = draw.random() < 0.3
        for parent in ("x", "y"):
            self._queue(parent, 12, states=parents_only or draw.random() < 0.7)
            for leaf in ("a", "b")[: draw.randint(1, 2)]:
                self.leaves.append(f"{parent}{leaf}")
                self._queue(f"{parent}{leaf}", 6, parent=parent, states=not parents_only and draw.random() < 0.7)
        self.scenario.recreates = True
        self._units = 0

    def _queue(self, name: str, most: int, states: bool, parent: str = "") -> None:
        draw = self.draw
        fields: dict[str, Any] = {"weight": draw.randint(1, 3)}
        if states:
            fields["deserved"] = {"cpu": draw.randint(1, most)}
            if draw.random() < 0.6:
                fields["deserved"]["gpu"] = draw.randint(0, most // 2)
        self.scenario.queue(name, parent=parent, **fields)

    def arrive(self) -> Scenario:
        """Draw a gang or single pods; members of a gang can have priorities of their own."""
        draw, self._units = self.draw, self._units + 1
        queue, name, size = draw.choice(self.leaves), f"u{self._units}", draw.randint(1, 5)
        gang = name if draw.random() < 0.6 else ""
        priority = draw.choice([0, 1, 5])
        if gang:
            stated = {"priority": priority} if draw.random() < 0.5 else {}
            self.scenario.gang(name, draw.randint(1, size), queue=queue, created=self.scenario.now, **stated)
        shape: dict[str, Any] = {"cpu": draw.choice([0, 1, 2])}
        shape["gpu"] = draw.choice([0, 1]) if shape["cpu"] else 1
        for number in range(size):
            own = draw.choice([0, 1, 5]) if draw.random() < 0.3 else priority
            self.scenario.pod(f"{name}-{number}", gang=gang, queue=queue, priority=own, **shape)
        return self.scenario

    def arrivals(self) -> Iterator[Scenario]:
        for _ in range(ARRIVALS):
            yield self.arrive()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_evictions_end_whichever_units_arrive(seed: int) -> None:
    for scenario in Crowd(seed).arrivals():
        scenario.settle(after=1)
        for plan in scenario.plans:
            # Pods are evicted only if a unit gets room in the same decision.
            assert {each.cause for each in plan.evictions} <= {each.cause for each in plan.nominations}
        scenario.plans.clear()


def test_random_clusters_with_new_units_have_evictions() -> None:
    gone = 0
    for seed in ALL_SEEDS[:8]:
        for scenario in Crowd(seed).arrivals():
            scenario.settle(after=1)
        gone += len(scenario.evicted)
        if gone > 20:
            return
    pytest.fail(f"only {gone} pods were evicted")
