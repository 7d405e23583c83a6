"""Borrowing after quota: in each cycle, units within quota are placed before units that borrow."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from phalanx.model.account import AccountKey, Tree

from ..extent import examples
from .scenario import Scenario

CAPACITY = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: conformance}]},
        {plugins: [{name: drf}, {name: predicates}, {name: capacity}, {name: nodeorder}]}]
"""
PROPORTION = CAPACITY.replace("capacity", "proportion")


class World:
    """Cluster of nodes with two CPUs; `own` is the reclaimable amount of each account, `kind` the kind of
    account.
    """

    def __init__(self, kind: str, own: dict[str, int], nodes: int = 4) -> None:
        self.kind = kind
        policy = {"capacity": CAPACITY, "proportion": PROPORTION}.get(kind)
        self.scenario = Scenario(policy).nodes(nodes, cpu=2)
        for name, cpu in own.items():
            match kind:
                case "elastic quotas":
                    self.scenario.elastic_quota(name, {"cpu": cpu}, {"cpu": 64})
                case "koordinator":
                    key, most = AccountKey(Tree.KOORDINATOR, name), {"cpu": 64}
                    self.scenario.account(key, deserved={"cpu": cpu}, capability=most, namespaces=(name,))
                case "capacity":
                    self.scenario.queue(name, deserved={"cpu": cpu})
                case "proportion":
                    self.scenario.queue(name, weight=max(1, cpu))

    def job(self, account: str, name: str, size: int, *, cpu: int = 2, **fields: object) -> World:
        queue = account if self.kind in ("capacity", "proportion") else "default"
        self.scenario.now += 1
        self.scenario.within(account).job(name, size, queue=queue, cpu=cpu, **fields)  # type: ignore[arg-type]
        return self


KINDS = ("elastic quotas", "koordinator", "capacity", "proportion")


@pytest.mark.parametrize("kind", KINDS)
def test_unit_within_quota_is_placed_before_a_borrower_whatever_age_and_priority(kind: str) -> None:
    world = World(kind, {"a": 4, "b": 4}).job("a", "loan", 4, priority=100).job("b", "own", 2).scenario.run()
    assert world.placed() == ["own-0", "own-1"]
    assert world.evicted == []


@pytest.mark.parametrize("kind", ["elastic quotas", "capacity"])
def test_remaining_room_is_lent_in_the_same_cycle(kind: str) -> None:
    world = World(kind, {"a": 2, "b": 4, "c": 2}).job("a", "loan", 2).job("b", "own", 2)
    plan = world.scenario.cycle()
    assert [bind.name for bind in plan.binds] == ["own-0", "own-1", "loan-0", "loan-1"]


def test_only_requested_resources_decide_whether_a_unit_borrows() -> None:
    """The account is above its quota of CPU already, but the pod requests none."""
    world = World("elastic quotas", {"a": 0, "b": 4}).job("a", "loan", 1).scenario.run()
    world.elastic_quota("a", {"cpu": 0, "gpu": 4}, {}).node("g", gpu=4, cpu=1)
    world.within("b").job("theirs", 4, gpu=1).within("a").job("ours", 4, gpu=1).run()
    assert world.placed("ours") == ["ours-0", "ours-1", "ours-2", "ours-3"]


def test_single_pods_within_quota_are_placed_before_those_that_borrow() -> None:
    world = World("elastic quotas", {"a": 4, "b": 4}).scenario
    world.within("a").pods("a", 4, cpu=2).within("b").pods("b", 2, cpu=2)
    assert sorted(bind.name for bind in world.cycle().binds) == ["a-0", "a-1", "b-0", "b-1"]


def test_gang_members_above_the_minimum_borrow_like_other_pods() -> None:
    world = World("elastic quotas", {"a": 4, "b": 4}).job("a", "elastic", 4, minimum=2, priority=9)
    world.job("b", "own", 2).scenario.run()
    assert world.scenario.placed() == ["elastic-0", "elastic-1", "own-0", "own-1"]
    assert world.scenario.evicted == []


def test_order_within_one_account_does_not_change() -> None:
    """The large job is first in its queue; the small one behind it fits before another account's loan."""
    world = World("capacity", {"a": 4, "b": 2}).job("b", "loan", 3).job("a", "large", 3, priority=9)
    world.job("a", "small", 1)
    plan = world.scenario.cycle()
    assert [bind.name for bind in plan.binds] == ["large-0", "large-1", "large-2", "small-0"]


def test_unit_blocked_for_another_reason_does_not_delay_borrowers() -> None:
    world = World("elastic quotas", {"a": 2, "b": 6}).job("b", "wide", 1, cpu=4).job("a", "loan", 4)
    assert len(world.scenario.run().placed("loan")) == 4


def test_room_owed_by_borrowers_is_not_lent_before_it_is_freed() -> None:
    """The unit within quota waits for a borrower to terminate; the room that is free now is reserved for it."""
    world = World("elastic quotas", {"a": 0, "b": 8, "c": 0}).job("a", "old", 3).scenario.run()
    world.within("c").job("new", 1, cpu=2, priority=9).within("b").job("own", 2, cpu=2)
    assert world.cycle().binds == []
    world.run()
    assert len(world.placed("own")) == 2
    assert all(name.startswith("old") for name in world.evicted)


def test_strict_fifo_queue_is_not_reordered_by_borrowing() -> None:
    scenario = Scenario().nodes(2, cpu=2).queue("default", fifo=True)
    scenario.elastic_quota("a", {"cpu": 0}, {"cpu": 8}).elastic_quota("b", {"cpu": 4}, {"cpu": 8})
    scenario.within("a").job("first", 1, cpu=2)
    scenario.now += 1
    scenario.within("b").job("second", 1, cpu=2)
    assert [bind.name for bind in scenario.cycle().binds] == ["first-0", "second-0"]


def test_nearest_level_to_the_leaf_decides_first_in_a_queue_tree() -> None:
    """Both are above the deserved amount of their common parent; only one is above its own as well."""
    scenario = Scenario(CAPACITY).nodes(3, cpu=2)
    scenario.queue("team", deserved={"cpu": 2}, parental=True).queue("other", deserved={"cpu": 4})
    scenario.queue("x", parent="team", deserved={"cpu": 0}).queue("y", parent="team", deserved={"cpu": 4})
    scenario.job("loan", 2, queue="x", cpu=2, priority=9)
    scenario.now += 1
    scenario.job("nearer", 2, queue="y", cpu=2).run()
    assert scenario.placed() == ["nearer-0", "nearer-1"]
    assert scenario.evicted == []


@pytest.mark.thorough
@pytest.mark.slow_but_first
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_bound_pods_are_not_evicted_while_nothing_else_changes(kind: str, data: st.DataObject) -> None:
    """Random quotas that the cluster can serve, and gangs that arrive at once; each account has one priority."""
    own = {name: data.draw(st.integers(0, 5), name) for name in data.draw(st.sampled_from(["ab", "abc"]))}
    nodes = data.draw(st.integers(1, 4), "nodes")
    assume(sum(own.values()) <= 2 * nodes)
    world = World(kind, own, nodes)
    priorities = {name: data.draw(st.sampled_from([0, 9]), f"priority of {name}") for name in own}
    for number in range(data.draw(st.integers(2, 6), "jobs")):
        account = data.draw(st.sampled_from(sorted(own)), "account")
        size = data.draw(st.integers(1, 4), "size")
        minimum = data.draw(st.integers(1, size), "minimum")
        name = f"{account}{number}"
        world.job(account, name, size, minimum=minimum, cpu=1, priority=priorities[account])
    world.scenario.run()
    assert world.scenario.evicted == []
