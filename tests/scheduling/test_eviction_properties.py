"""Properties of every eviction, on random clusters."""

from __future__ import annotations

import pytest

from phalanx.scheduling.preemption.rules.min_available import holds_quorum

from ..extent import examples
from .eviction.exact import Exact
from .eviction.problem import Problem
from .eviction.small_clusters import SmallCluster

# Larger than the exhaustive search.
VICTIMS, NODES = (20, 45), 10
ALL_SEEDS = range(70, 95)
SEEDS = ALL_SEEDS[: examples(25)]
QUIET = 50


def larger(seed: int) -> SmallCluster:
    return SmallCluster(seed, VICTIMS, NODES)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_eviction_decision_is_allowed_sufficient_and_minimal(seed: int) -> None:
    cluster = larger(seed)
    problem = Problem(cluster.scenario, cluster.waiting)
    # Each problem needs a program of its own; it describes the cluster before any eviction.
    exact, again = Exact(problem), iter([Exact(problem) for _ in problem.pods])
    plan = cluster.scenario.cycle()
    going = problem.named(eviction.name for eviction in plan.evictions)
    if not going:
        return
    # The whole preemptor gets room in the same decision.
    assert {nomination.name for nomination in plan.nominations} == set(cluster.waiting)
    assert len({entry.cause for entry in plan.nominations} | {entry.cause for entry in plan.evictions}) == 1
    # Gangs keep their quorum or are evicted whole; no protected pod is evicted.
    assert problem.whole(going)
    # Reclaimees owe something whenever one more pod is evicted, and keep their guarantees.
    units = problem.units(going)
    assert problem.in_turn(units)
    assert exact.suffices(going)
    for unit in units:
        fewer = going - set(unit)
        assert not (problem.whole(fewer) and next(again).suffices(fewer)), f"{unit} need not go"


def test_random_clusters_have_evictions_to_check() -> None:
    """Otherwise the properties above would be vacuous."""
    sizes = [len(larger(seed).scenario.cycle().evictions) for seed in ALL_SEEDS]
    assert sum(size > 0 for size in sizes) >= len(sizes) // 3
    assert max(sizes) > 3
    assert any(sizes[: len(SEEDS)])


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_equal_clusters_get_equal_victims(seed: int) -> None:
    one, other = larger(seed).scenario.cycle(), larger(seed).scenario.cycle()
    assert one.evictions == other.evictions
    assert one.nominations == other.nominations


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_evictions_end_once_every_unit_is_served(seed: int) -> None:
    """Controllers create replacements of the victims, which can preempt in turn, but not forever."""
    scenario = larger(seed).scenario
    scenario.recreates = True
    scenario.run(QUIET)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_gangs_never_run_below_their_minimum_after_evictions(seed: int) -> None:
    scenario = larger(seed).scenario
    scenario.recreates = True
    gangs = scenario.state.gangs.values()
    torn = [gang for gang in gangs if not holds_quorum(gang)]
    for _ in range(8):
        scenario.work()
        for gang in gangs:
            assert gang.spec is not None
            active = gang.counts().active
            assert active == 0 or active >= gang.spec.min_member or gang in torn, gang
        scenario.confirm()
        scenario.depart()
