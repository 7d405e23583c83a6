"""Elastic gangs take back the whole share of their queue or quota, surplus included, in one decision."""

from __future__ import annotations

import pytest

from phalanx.model.account import AccountKey, Tree
from phalanx.scheduling.policy.loader import DEFAULT_POLICY

from .scenario import Scenario

LEVELLING = DEFAULT_POLICY.replace("name: drf", "name: drf\n    enablePreemptable: true")
CAPACITY = DEFAULT_POLICY.replace("proportion", "capacity")


def cluster(policy: str | None = None) -> Scenario:
    """Return a cluster of 10 GPUs whose queue q1 deserves four times as much as q2."""
    return Scenario(policy).node("n", gpu=10, cpu=100).queue("q1", weight=4).queue("q2", weight=1)


def with_own_shares(kind: str) -> Scenario:
    """Return a cluster of 10 GPUs in which `ns1` and q1 can claim 8 of them, `ns2` and q2 can claim 2."""
    world = Scenario(CAPACITY if kind == "capacity" else None).node("n", gpu=10, cpu=100)
    for place, amount in ((1, 8), (2, 2)):
        match kind:
            case "proportion":
                world.queue(f"q{place}", weight=amount)
            case "capacity":
                world.queue(f"q{place}", deserved={"gpu": amount})
            case "elastic quotas":
                world.elastic_quota(f"ns{place}", {"gpu": amount}, {"gpu": 10})
            case "koordinator":
                quota = AccountKey(Tree.KOORDINATOR, f"team{place}")
                limits = {"deserved": {"gpu": amount}, "capability": {"gpu": 10}}
                world.account(quota, namespaces=(f"ns{place}",), **limits)
    return world


def job(world: Scenario, kind: str, place: int, members: int, minimum: int) -> None:
    world.now += 1
    queue = f"q{place}" if kind in ("proportion", "capacity") else "default"
    world.within(f"ns{place}").job(f"g{place}", members, minimum, queue=queue, gpu=1)


KINDS = ("proportion", "capacity", "elastic quotas", "koordinator")


@pytest.mark.parametrize("kind", KINDS)
def test_elastic_gang_takes_back_the_share_of_its_account_from_surplus(kind: str) -> None:
    world = with_own_shares(kind)
    job(world, kind, 2, 10, 1)
    world.run()
    job(world, kind, 1, 10, 1)
    world.run()
    assert (len(world.placed("g1")), len(world.placed("g2"))) == (8, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_elastic_gang_takes_back_the_share_of_its_account_from_single_pods(kind: str) -> None:
    world = with_own_shares(kind)
    queue = "q2" if kind in ("proportion", "capacity") else "default"
    world.within("ns2").pods("single", 10, queue=queue, gpu=1).run()
    job(world, kind, 1, 10, 1)
    world.run()
    assert (len(world.placed("g1")), len(world.placed("single"))) == (8, 2)


def test_all_surplus_that_is_due_is_evicted_in_one_decision() -> None:
    world = cluster().job("loan", 10, 1, queue="q2", gpu=1).run()
    world.now += 1
    world.job("own", 10, 1, queue="q1", gpu=1).run()
    causes = [{evict.cause for evict in plan.evictions} for plan in world.plans if plan.evictions]
    assert [len(plan.evictions) for plan in world.plans if plan.evictions] == [1, 7]
    assert [len(each) for each in causes] == [1, 1]


def test_largest_number_of_members_for_which_victims_exist_is_served_at_once() -> None:
    """Seven more members are due, but without a second gang of four q2 would fall below its share."""
    world = cluster().job("one", 4, queue="q2", gpu=1).job("two", 4, queue="q2", gpu=1)
    world.pods("loan", 2, queue="q2", gpu=1).run()
    world.now += 1
    world.job("own", 10, 1, queue="q1", gpu=1).run()
    assert [len(plan.evictions) for plan in world.plans if plan.evictions] == [1, 5]
    assert len(world.placed("own")) == 6


def test_whole_gang_is_evicted_for_surplus_if_its_queue_keeps_its_share() -> None:
    world = cluster().job("first", 4, queue="q2", gpu=1).run()
    world.now += 1
    world.job("second", 6, queue="q2", gpu=1).run()
    world.now += 1
    world.job("own", 10, 1, queue="q1", gpu=1).run()
    assert len(world.placed("first") + world.placed("second")) in (4, 6)
    assert len(world.placed("own")) == 10 - len(world.placed("first") + world.placed("second"))


def test_whole_gang_stays_if_its_queue_would_fall_below_its_share() -> None:
    world = cluster().job("loan", 9, queue="q2", gpu=1).run()
    world.now += 1
    world.job("own", 10, 1, queue="q1", gpu=1).run()
    assert len(world.placed("loan")) == 9
    assert len(world.placed("own")) == 1
    assert world.evicted == []


def test_minimum_of_a_younger_gang_comes_before_the_surplus_of_an_older_one() -> None:
    world = cluster().pods("loan", 10, queue="q2", gpu=1).run()
    world.now += 1
    world.job("wide", 10, 1, queue="q1", gpu=1)
    world.now += 1
    world.job("next", 6, queue="q1", gpu=1).run()
    assert len(world.placed("next")) == 6
    assert (len(world.placed("wide")), len(world.placed("loan"))) == (2, 2)


def test_surplus_evicts_no_pod_of_its_own_queue() -> None:
    world = cluster().job("low", 9, 1, queue="q1", gpu=1, priority=0).run()
    world.now += 1
    world.job("high", 10, 1, queue="q1", gpu=1, priority=10).run()
    assert len(world.placed("low")) == 9
    assert len(world.placed("high")) == 1


def test_surplus_above_the_share_of_its_queue_evicts_no_pod() -> None:
    world = cluster().job("own", 8, 1, queue="q1", gpu=1).pods("theirs", 2, queue="q2", gpu=1).run()
    world.now += 1
    world.job("more", 4, 1, queue="q2", gpu=1).run()
    assert world.evicted == []


def test_surplus_reclaims_no_pod_without_the_action_reclaim() -> None:
    policy = DEFAULT_POLICY.replace("preempt, reclaim", "preempt")
    world = cluster(policy).job("loan", 9, 1, queue="q2", gpu=1).run()
    world.now += 1
    world.job("own", 10, 1, queue="q1", gpu=1).run()
    assert world.evicted == []


def test_drf_levels_surplus_of_equal_gangs() -> None:
    world = Scenario(LEVELLING).node("n", cpu=10).job("a", 10, 1, cpu=1).run()
    world.now += 1
    world.job("b", 10, 1, cpu=1).run()
    assert (len(world.placed("a-")), len(world.placed("b-"))) == (5, 5)


def test_drf_levels_no_minimum_for_surplus() -> None:
    world = Scenario(LEVELLING).node("n", cpu=10).job("a", 9, 9, cpu=1).run()
    world.now += 1
    world.job("b", 10, 1, cpu=1).run()
    assert (len(world.placed("a-")), len(world.placed("b-"))) == (9, 1)


def test_reclaimed_surplus_returns_to_no_idle_cycle() -> None:
    """The evicted members are created again: the cluster settles at the shares."""
    world = cluster().job("loan", 10, 1, queue="q2", gpu=1).run()
    world.recreates = True
    world.now += 1
    world.job("own", 10, 1, queue="q1", gpu=1).run()
    assert (len(world.placed("own")), len(world.placed("loan"))) == (8, 2)
    assert len(world.evicted) == 8
