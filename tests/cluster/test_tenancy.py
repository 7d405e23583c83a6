"""Table of running pods by class: incremental updates row by row equal a recount."""

from __future__ import annotations

from collections import Counter

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.model.pod import MemberState

from .history import History

THERE = (MemberState.ASSUMED, MemberState.BOUND, MemberState.RUNNING)
STEPS = 150


def counted(state: ClusterState) -> Counter[object]:
    """Return (row, charge path, footprint, gang, priority, whether it is being bound) of every pod on a node."""
    return Counter(
        (r.row, r.charge_path, r.footprint, r.gang, r.pod.priority, r.state is MemberState.ASSUMED)
        for r in state.pods.values()
        if r.row >= 0 and r.state in THERE
    )


def told(state: ClusterState) -> Counter[object]:
    table, kinds = state.victim_table(), state.victims.kinds
    found: Counter[object] = Counter()
    for row, number, count in zip(table.rows.tolist(), table.kinds.tolist(), table.counts.tolist(), strict=True):
        kind = kinds[number]
        found[row, kind.charge_path, kind.footprint, kind.gang, kind.priority, kind.arriving] += count
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("every", [1, 7])
def test_tenancy_table_equals_a_recount(seed: int, every: int) -> None:
    history = History(seed)
    for number in range(STEPS):
        history.step()
        if number % every == 0:
            assert told(history.state) == counted(history.state)
            rows = history.state.victim_table().rows.tolist()
            assert rows == sorted(rows)
            sums = history.state.victim_table().pods(len(history.state.victims.kinds))
            assert int(sums.sum()) == counted(history.state).total()
