"""Properties of random histories: every index equals a recount from scratch."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.cluster.resource_space import exact_sums
from phalanx.cluster.state import ClusterState
from phalanx.model.events import ClusterEvent, GangUpdated, NodeRemoved, NodeUpdated, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import MemberState

from .audit import arrays_by_name, audit
from .history import GANG_NAMES, NODES, UIDS, History, random_gang, random_node, random_pod


@pytest.mark.parametrize("seed", range(25))
def test_every_index_equals_a_recount_after_every_step(seed: int) -> None:
    history = History(seed)
    for _ in range(200):
        history.step()
        try:
            audit(history.state)
        except AssertionError as error:
            error.add_note("\n".join(history.story[-40:]))
            raise


@pytest.mark.parametrize("seed", range(10))
def test_rolled_back_plan_leaves_no_trace(seed: int) -> None:
    history, tried = History(seed), 0
    state = history.state
    while tried < 10:
        history.step()
        pending = [record for record in state.pods.values() if record.state is MemberState.PENDING]
        rows = state.nodes.rows().tolist()
        if not pending or not rows:
            continue
        tried += 1
        before, version = arrays_by_name(state), state.version
        transaction = state.transaction()
        transaction.lift(pending)
        for record in pending:
            transaction.place(record.pod_class, [record], [history.draw.choice(rows)])
        transaction.rollback()
        assert arrays_by_name(state) == before
        assert state.version == version
        audit(state)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_independent_facts_in_any_order_give_equal_clusters(seed: int, order: random.Random) -> None:
    draw = random.Random(seed)
    events: list[ClusterEvent] = [
        *(NodeUpdated(random_node(draw, name)) for name in NODES),
        *(PodUpdated(random_pod(draw, uid)) for uid in UIDS),
        *(GangUpdated(random_gang(draw, name)) for name in GANG_NAMES),
    ]
    shuffled = list(events)
    order.shuffle(shuffled)
    one, other = ClusterState(), ClusterState()
    for event in events:
        one.apply(event)
    for event in shuffled:
        other.apply(event)
    names = sorted(one.space.names)
    assert sorted(other.space.names) == names
    assert arrays_by_name(one) == arrays_by_name(other)
    assert {key: gang.counts() for key, gang in one.gangs.items()} == {
        key: gang.counts() for key, gang in other.gangs.items()
    }


@given(st.lists(st.tuples(st.sampled_from(NODES), st.booleans()), max_size=30))
def test_lowest_free_row_is_reused_first(history: list[tuple[str, bool]]) -> None:
    state = ClusterState()
    rows: dict[str, int] = {}
    for name, present in history:
        if not present:
            state.apply(NodeRemoved(name))
            rows.pop(name, None)
            continue
        state.apply(NodeUpdated(Node(name)))
        if name not in rows:
            rows[name] = min(set(range(len(NODES))) - set(rows.values()))
    assert {name: state.nodes.row(name) for name in NODES if name in rows} == rows


@given(st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=50))
def test_sums_over_nodes_with_absurd_amounts_are_exact(amounts: list[int]) -> None:
    repeated = amounts * 100
    assert exact_sums(np.array([repeated], dtype=np.int64)) == [sum(repeated)]
