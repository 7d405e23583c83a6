"""Ledger, choice and protocol over many simulated clusters: each gang runs once, and no later than promised."""

from __future__ import annotations

import pytest

from phalanx.hub.dispatch import Phase
from tests.hub.simulated_members import ROUND, Simulation


@pytest.mark.slow_but_first
@pytest.mark.parametrize("seed", [3, 1, 2])
def test_every_gang_runs_once_and_starts_no_later_than_promised(seed: int) -> None:
    simulation = Simulation(members=5, gangs=400, seed=seed)
    simulation.run(5000)
    for gang in simulation.gangs.values():
        assert gang.record.phase is Phase.ENDED
        assert [name for name, _ in gang.starts] == [gang.record.status.cluster]
        assert gang.record.status.epoch == 1
    # (In each round a member looks once for ended and for newly sent gangs.)
    assert max(simulation.slipped()) <= 3 * ROUND
    assert len({gang.record.status.cluster for gang in simulation.gangs.values()}) == 5


def test_no_gang_waits_in_a_cluster_while_another_could_start_it_at_once() -> None:
    simulation = Simulation(members=4, gangs=60, sizes=(8,))
    simulation.run(2000)
    total = sum(member.total for member in simulation.members.values())
    at_once = sum(start <= 1_700_000_000 + ROUND for gang in simulation.gangs.values() for _, start in gang.starts)
    assert at_once == min(60, total // 8)
