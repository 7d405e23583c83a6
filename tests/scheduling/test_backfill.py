"""Pods that ask for nothing but a slot: who places them, and for whom nobody goes."""

from __future__ import annotations

import pytest

from phalanx.model.resources import NO_AMOUNTS

from .scenario import Scenario, key

BACKFILL = """
actions: "enqueue, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}, {name: proportion}]}]
"""
EVICTS = """
actions: "enqueue, allocate, preempt, backfill"
configurations: [{name: preempt, arguments: {phalanx.bestEffortEvicts: "true"}}]
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}]}]
"""
DEFAULT = EVICTS.replace('"true"', '"false"')


class TestBackfillAlone:
    def test_best_effort_gang_starts_whole(self) -> None:
        cluster = Scenario(BACKFILL).node("n1", pods=2).gang("g", 3).pods("g", 3, gang="g").run()
        assert cluster.placed() == []
        cluster.node("n2", pods=1).run()
        assert len(cluster.placed()) == 3

    def test_a_gang_that_asks_for_more_is_left_alone_and_told_so(self) -> None:
        cluster = (
            Scenario(BACKFILL).node("n1", cpu=8).gang("g", 2).pod("a", gang="g").pod("b", gang="g", cpu=1).run()
        )
        assert cluster.placed() == []
        assert cluster.why("g").code == "NotConsidered"

    def test_where_slots_are_enough_for_the_minimum_they_start_and_the_rest_stays(self) -> None:
        cluster = Scenario(BACKFILL).node("n1", cpu=8).gang("g", 2)
        cluster.pods("slot", 3, gang="g").pod("big", gang="g", cpu=1, priority=9).run()
        assert cluster.placed() == ["slot-0", "slot-1", "slot-2"]

    def test_a_role_that_asks_for_more_keeps_the_gang_together(self) -> None:
        cluster = Scenario(BACKFILL).node("n1", cpu=8).gang("g", 2, roles=(("worker", 1),))
        cluster.pods("slot", 2, gang="g", role="ps").pod("w", gang="g", role="worker", cpu=1).run()
        assert cluster.placed() == []

    def test_members_join_a_gang_that_has_its_minimum(self) -> None:
        cluster = Scenario(BACKFILL).node("n1", cpu=8).gang("g", 1)
        cluster.pod("there", gang="g", cpu=1, node="n1").pod("late", gang="g").run()
        assert cluster.where("late") == "n1"

    def test_an_invalid_gang_gets_nothing(self) -> None:
        cluster = Scenario(BACKFILL).node("n1").gang("g", 3).pods("g", 2, gang="g").run()
        assert cluster.placed() == []

    def test_priority_decides_among_gangs_and_pods_of_one_queue(self) -> None:
        cluster = Scenario(BACKFILL).node("n1", pods=3)
        cluster.pods("low", 2).gang("g", 2).pods("g", 2, gang="g", priority=5).pod("high", priority=9).run()
        assert cluster.placed() == ["g-0", "g-1", "high"]

    def test_a_lost_member_is_replaced(self) -> None:
        cluster = Scenario(BACKFILL).node("n1", pods=3).gang("g", 2).pods("g", 2, gang="g").run()
        cluster.gone("g-0").pod("again", gang="g").run()
        assert cluster.where("again") == "n1"


class TestWhoGoesForASlot:
    def full(self, policy: str) -> Scenario:
        cluster = Scenario(policy).node("n1", cpu=8, pods=2)
        return cluster.pod("works", cpu=1).pod("idles").run()

    def test_only_who_asks_for_nothing_either(self) -> None:
        cluster = self.full(DEFAULT).pod("urgent", priority=10).run(50)
        assert cluster.evicted == ["idles"]
        cluster.pod("another", priority=9).run(50)
        assert cluster.evicted == ["idles"]

    def test_a_pod_whose_kubelet_says_that_it_takes_nothing_asks_for_nothing(self) -> None:
        cluster = self.full(DEFAULT).becomes("idles", usage=NO_AMOUNTS)
        assert cluster.pod("urgent", priority=10).run(50).evicted == ["idles"]

    def test_the_policy_may_let_them_evict_like_all_others(self) -> None:
        cluster = self.full(EVICTS).pods("urgent", 2, priority=10).run(50)
        assert sorted(cluster.evicted) == ["idles", "works"]

    def test_whoever_asks_for_something_evicts_both(self) -> None:
        cluster = self.full(DEFAULT).pods("urgent", 2, cpu=1, priority=10).run(50)
        assert sorted(cluster.evicted) == ["idles", "works"]

    def test_a_gang_of_slots_breaks_no_gang_that_works(self) -> None:
        cluster = Scenario(DEFAULT).node("n1", cpu=8, pods=2).gang("w", 2).pods("w", 2, gang="w", cpu=1).run()
        cluster.gang("g", 2).pods("g", 2, gang="g", priority=10).run(50)
        assert cluster.evicted == []


@pytest.mark.parametrize("minimum", [1, 3])
def test_role_minima_above_the_gangs_own_are_enforced(minimum: int) -> None:
    """Volcano looks at them only where minAvailable is at least their sum; here they always hold."""
    cluster = Scenario().node("n1", cpu=2).gang("g", minimum, roles=(("ps", 1), ("worker", 2)))
    cluster.pod("ps", gang="g", role="ps", cpu=1).pods("worker", 2, gang="g", role="worker", cpu=1).run()
    assert cluster.placed() == []
    assert cluster.scheduler.queue.idle
    cluster.node("n2", cpu=1).run()
    assert len(cluster.placed()) == 3
    need = cluster.state.gangs[key("g")]
    assert need.spec is not None
    assert need.spec.min_member == minimum
