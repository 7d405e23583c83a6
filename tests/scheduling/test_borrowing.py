"""Borrowing are given last: nothing is lent in a cycle that somebody of the same cycle has a right to."""

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
    """A cluster of nodes with two CPUs; `own` is what each account may have back, `kind` of which sort they are."""

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
def test_who_stays_within_his_own_goes_before_who_borrows_whatever_age_and_priority(kind: str) -> None:
    world = World(kind, {"a": 4, "b": 4}).job("a", "loan", 4, priority=100).job("b", "own", 2).scenario.run()
    assert world.placed() == ["own-0", "own-1"]
    assert world.evicted == []


@pytest.mark.parametrize("kind", ["elastic quotas", "capacity"])
def test_what_is_left_is_lent_in_the_same_cycle(kind: str) -> None:
    world = World(kind, {"a": 2, "b": 4, "c": 2}).job("a", "loan", 2).job("b", "own", 2)
    plan = world.scenario.cycle()
    assert [bind.name for bind in plan.binds] == ["own-0", "own-1", "loan-0", "loan-1"]


def test_only_what_is_asked_for_counts() -> None:
    """It has more CPU than its own already, and asks for none."""
    world = World("elastic quotas", {"a": 0, "b": 4}).job("a", "loan", 1).scenario.run()
    world.elastic_quota("a", {"cpu": 0, "gpu": 4}, {}).node("g", gpu=4, cpu=1)
    world.within("b").job("theirs", 4, gpu=1).within("a").job("ours", 4, gpu=1).run()
    assert world.placed("ours") == ["ours-0", "ours-1", "ours-2", "ours-3"]


def test_pods_without_a_gang_are_lent_to_as_far_as_their_own_reaches_first() -> None:
    world = World("elastic quotas", {"a": 4, "b": 4}).scenario
    world.within("a").pods("a", 4, cpu=2).within("b").pods("b", 2, cpu=2)
    assert sorted(bind.name for bind in world.cycle().binds) == ["a-0", "a-1", "b-0", "b-1"]


def test_what_a_gang_has_above_its_minimum_is_a_loan_like_any_other() -> None:
    world = World("elastic quotas", {"a": 4, "b": 4}).job("a", "elastic", 4, minimum=2, priority=9)
    world.job("b", "own", 2).scenario.run()
    assert world.scenario.placed() == ["elastic-0", "elastic-1", "own-0", "own-1"]
    assert world.scenario.evicted == []


def test_within_one_account_the_order_stays() -> None:
    """The large job is first in its queue; the small one behind it could be placed before the other's loan."""
    world = World("capacity", {"a": 4, "b": 2}).job("b", "loan", 3).job("a", "large", 3, priority=9)
    world.job("a", "small", 1)
    plan = world.scenario.cycle()
    assert [bind.name for bind in plan.binds] == ["large-0", "large-1", "large-2", "small-0"]


def test_who_cannot_be_placed_for_other_reasons_holds_up_nobody() -> None:
    world = World("elastic quotas", {"a": 2, "b": 6}).job("b", "wide", 1, cpu=4).job("a", "loan", 4)
    assert len(world.scenario.run().placed("loan")) == 4


def test_room_that_others_must_give_back_is_not_lent_meanwhile() -> None:
    """The one within its own has to wait for a borrower to leave; what is free now is kept for it."""
    world = World("elastic quotas", {"a": 0, "b": 8, "c": 0}).job("a", "old", 3).scenario.run()
    world.within("c").job("new", 1, cpu=2, priority=9).within("b").job("own", 2, cpu=2)
    assert world.cycle().binds == []
    world.run()
    assert len(world.placed("own")) == 2
    assert all(name.startswith("old") for name in world.evicted)


def test_a_queue_that_keeps_its_order_keeps_it() -> None:
    scenario = Scenario().nodes(2, cpu=2).queue("default", fifo=True)
    scenario.elastic_quota("a", {"cpu": 0}, {"cpu": 8}).elastic_quota("b", {"cpu": 4}, {"cpu": 8})
    scenario.within("a").job("first", 1, cpu=2)
    scenario.now += 1
    scenario.within("b").job("second", 1, cpu=2)
    assert [bind.name for bind in scenario.cycle().binds] == ["first-0", "second-0"]


def test_of_a_tree_the_level_nearest_to_the_leaf_counts_most() -> None:
    """Both are above what their common parent deserves; only one of them is above its own as well."""
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
def test_nothing_that_is_bound_is_evicted_while_nothing_else_changes(kind: str, data: st.DataObject) -> None:
    """Random quotas that the cluster can keep, and gangs that ask at once; each account has one priority."""
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
