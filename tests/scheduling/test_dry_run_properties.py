"""Properties of the dry run on random clusters: it changes nothing, and its advice is correct."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from phalanx.scheduling.whatif.dry_run import DryRun, NothingHelps

from ..cluster.audit import audit
from ..extent import examples
from .scenario import Scenario
from .test_reclaim import CAPACITY, PROPORTION

SEEDS = range(examples(24))
ALL_SEEDS = range(24)
OUTRANK = "raise its priority above "


def world(seed: int) -> Scenario:
    """A few full nodes and waiting pods; with queues, with quotas, or with neither."""
    return _world(seed).observed_again()


@cache
def _world(seed: int) -> Scenario:
    draw = random.Random(seed)
    kind = seed % 3
    scenario = Scenario([None, CAPACITY, PROPORTION][kind]).nodes(draw.randint(1, 3), cpu=4)
    names = ["q1", "q2"]
    for name in names:
        if kind == 0 and draw.random() < 0.7:
            scenario.elastic_quota(name, {"cpu": draw.randint(0, 6)}, {"cpu": draw.randint(6, 12)})
        elif kind:
            fields: dict[str, object] = {"deserved": {"cpu": draw.randint(0, 6)}} if kind == 1 else {}
            fields |= {"weight": draw.randint(1, 3), "reclaimable": draw.random() < 0.7}
            scenario.queue(name, **fields)  # type: ignore[arg-type]
    for number in range(draw.randint(4, 9)):
        name = draw.choice(names)
        fields = {"cpu": draw.randint(1, 2), "priority": draw.randint(0, 2)}
        if kind:
            fields["queue"] = name
        else:
            scenario.within(name)
        marks = {"preemptable": draw.random() < 0.8, "preempts": draw.random() < 0.9}
        if draw.random() < 0.5:
            scenario.job(f"g{number}", draw.randint(1, 4), more=marks, **fields)  # type: ignore[arg-type]
        else:
            scenario.pod(f"p{number}", more=marks, **fields)  # type: ignore[arg-type]
        if number < 5:
            scenario.work().confirm()
    return scenario


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_dry_run_changes_no_random_cluster(seed: int) -> None:
    scenario = world(seed)
    rehearsal = DryRun(scenario.state, scenario.policy)
    rehearsal.cycle(scenario.now)
    idle = scenario.state.nodes.idle.copy()
    scenario.state.ledger.refresh_sums()
    sums = {key: account.as_tuple() for key, account in scenario.state.ledger.accounts.items()}
    for unit in rehearsal.session.units:
        found = rehearsal.disruption(unit)
        audit(scenario.state)
        assert np.array_equal(scenario.state.nodes.idle, idle)
        if isinstance(found, NothingHelps) and found.what_if is not None and found.what_if.eviction is not None:
            eviction = found.what_if.eviction
            wanted = {record for victim in eviction.victims for record in victim.records} | {*eviction.displaced}
            assert wanted
            assert found.what_if.obstacles
            assert all(set(obstacle.records) <= wanted for obstacle in found.what_if.obstacles)
    scenario.state.ledger.refresh_sums()
    assert {key: account.as_tuple() for key, account in scenario.state.ledger.accounts.items()} == sums


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_unit_raised_to_the_advised_priority_gets_room(seed: int) -> None:
    scenario = world(seed)
    rehearsal = DryRun(scenario.state, scenario.policy)
    rehearsal.cycle(scenario.now)
    advised: dict[str, int] = {}
    for unit in rehearsal.session.units:
        found = rehearsal.disruption(unit)
        if isinstance(found, NothingHelps) and unit.pod is not None:
            for change in found.changes:
                if change.startswith(OUTRANK) and ", and " not in change:
                    advised[unit.pod.pod.uid] = int(change.removeprefix(OUTRANK)) + 1
    for name, priority in advised.items():
        again = world(seed).becomes(name, priority=priority).restart()
        rehearsal = DryRun(again.state, again.policy)
        plan = rehearsal.cycle(again.now)
        asks = rehearsal.unit(name)
        assert asks is not None
        placed = name in [bind.name for bind in plan.binds]
        assert placed or not isinstance(rehearsal.disruption(asks), NothingHelps)


def test_random_clusters_have_advice_to_check() -> None:
    """Otherwise the properties above would be vacuous."""
    kinds: set[str] = set()
    for seed in ALL_SEEDS:
        scenario = world(seed)
        rehearsal = DryRun(scenario.state, scenario.policy)
        rehearsal.cycle(scenario.now)
        for unit in rehearsal.session.units:
            found = rehearsal.disruption(unit)
            kinds.add(type(found).__name__)
            if isinstance(found, NothingHelps):
                kinds.update(" ".join(change.split()[:3]) for change in found.changes)
        if {"NothingHelps", "Eviction", "raise its priority", "raise the deserved", "use a priority"} <= kinds:
            return
    pytest.fail(f"only {kinds}")
