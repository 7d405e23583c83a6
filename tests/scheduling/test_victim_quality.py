"""Quality of victims: hundreds of small clusters, each compared with the optimal choice.

The cost of a choice is `Problem.cost`: borrowed amounts before owned ones, near reclaimees before far ones, no
budget broken before one, no gang broken before one, low priorities before high, few pods before many, and of
equal
groups the members of low priorities of their own. An engine that compares part by part has the best cost if and
only if `scalar` of it, one number with weights, is the smallest.
"""

from __future__ import annotations

from collections import Counter

import pytest

from ..extent import examples
from .eviction.exact import Exact, scalar, weights
from .eviction.problem import Problem
from .eviction.small_clusters import SmallCluster

QUICK, ALL = 60, 500
# Limit of the excess of the engine's summed costs over the best ones.
TOLERANCE = 0.10


class Comparison:
    """Return the engine's choice and the best one in one cluster; None where there is none."""

    def __init__(self, seed: int) -> None:
        cluster = SmallCluster(seed)
        problem = Problem(cluster.scenario, cluster.waiting)
        best = Exact(problem).best()
        plan = cluster.scenario.cycle()
        going = problem.named(eviction.name for eviction in plan.evictions)
        self.helps = bool(plan.nominations or plan.binds)
        assert self.helps == (best is not None), f"{going or 'nobody'} goes, where {best or 'nobody'} would help"
        assert {nomination.name for nomination in plan.nominations} in (set(), set(cluster.waiting))
        assert problem.whole(going)
        assert problem.in_turn(problem.units(going))
        self.found, self.best = scalar(problem.cost(going)), scalar(problem.cost(best or ()))
        assert self.found >= self.best, "better than the best"


def compare(seeds: range) -> Counter[str]:
    tally: Counter[str] = Counter()
    for seed in seeds:
        try:
            found = Comparison(seed)
        except AssertionError as error:
            error.add_note(f"in SmallCluster({seed})")
            raise
        tally["needy"] += bool(found.helps and found.best)
        tally["hopeless"] += not found.helps
        tally["equal"] += bool(found.helps and found.best and found.found == found.best)
        tally["found"] += found.found
        tally["best"] += found.best
    assert tally["found"] <= (1 + TOLERANCE) * tally["best"]
    return tally


@pytest.mark.thorough
def test_victims_are_near_optimal_in_some_clusters() -> None:
    count = examples(QUICK)
    tally = compare(range(count))
    assert tally["needy"] >= count // 4
    assert tally["hopeless"] >= count // 4


@pytest.mark.slow
def test_victims_are_near_optimal_in_many_clusters() -> None:
    tally = compare(range(QUICK, ALL))
    assert tally["equal"] >= 0.95 * tally["needy"]


def test_scalar_cost_orders_choices_as_their_parts_do() -> None:
    costs = [(0, 1, 0, 0, 3, 14, 42, 9), (0, 1, 0, 1, 0, 1, 0, 0), (0, 1, 1, 0, 0, 1, 0, 0), (1,) + (0,) * 7]
    assert sorted(costs, key=scalar) == sorted(costs)
    assert weights()[-1] == 1
