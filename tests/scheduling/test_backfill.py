"""Best-effort pods, which request only a pod slot: which action places them, and that they preempt only each
other.
"""

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

    def test_backfill_alone_skips_a_gang_with_requests_and_its_verdict_says_so(self) -> None:
        cluster = (
            Scenario(BACKFILL).node("n1", cpu=8).gang("g", 2).pod("a", gang="g").pod("b", gang="g", cpu=1).run()
        )
        assert cluster.placed() == []
        assert cluster.why("g").code == "NotConsidered"

    def test_best_effort_gang_starts_its_minimum_where_slots_are_scarce(self) -> None:
        cluster = Scenario(BACKFILL).node("n1", cpu=8).gang("g", 2)
        cluster.pods("slot", 3, gang="g").pod("big", gang="g", cpu=1, priority=9).run()
        assert cluster.placed() == ["slot-0", "slot-1", "slot-2"]

    def test_gang_with_one_role_with_requests_is_not_split_by_backfill(self) -> None:
        cluster = Scenario(BACKFILL).node("n1", cpu=8).gang("g", 2, roles=(("worker", 1),))
        cluster.pods("slot", 2, gang="g", role="ps").pod("w", gang="g", role="worker", cpu=1).run()
        assert cluster.placed() == []

    def test_best_effort_members_join_a_gang_above_its_minimum(self) -> None:
        cluster = Scenario(BACKFILL).node("n1", cpu=8).gang("g", 1)
        cluster.pod("there", gang="g", cpu=1, node="n1").pod("late", gang="g").run()
        assert cluster.where("late") == "n1"

    def test_invalid_best_effort_gang_is_not_placed(self) -> None:
        cluster = Scenario(BACKFILL).node("n1").gang("g", 3).pods("g", 2, gang="g").run()
        assert cluster.placed() == []

    def test_best_effort_gangs_and_pods_of_one_queue_are_ordered_by_priority(self) -> None:
        cluster = Scenario(BACKFILL).node("n1", pods=3)
        cluster.pods("low", 2).gang("g", 2).pods("g", 2, gang="g", priority=5).pod("high", priority=9).run()
        assert cluster.placed() == ["g-0", "g-1", "high"]

    def test_lost_member_of_a_best_effort_gang_is_replaced(self) -> None:
        cluster = Scenario(BACKFILL).node("n1", pods=3).gang("g", 2).pods("g", 2, gang="g").run()
        cluster.gone("g-0").pod("again", gang="g").run()
        assert cluster.where("again") == "n1"


class TestPreemptionForSlots:
    def full(self, policy: str) -> Scenario:
        cluster = Scenario(policy).node("n1", cpu=8, pods=2)
        return cluster.pod("works", cpu=1).pod("idles").run()

    def test_best_effort_pod_evicts_best_effort_pods_only(self) -> None:
        cluster = self.full(DEFAULT).pod("urgent", priority=10).run(50)
        assert cluster.evicted == ["idles"]
        cluster.pod("another", priority=9).run(50)
        assert cluster.evicted == ["idles"]

    def test_pod_whose_kubelet_reports_zero_resources_is_best_effort(self) -> None:
        cluster = self.full(DEFAULT).becomes("idles", usage=NO_AMOUNTS)
        assert cluster.pod("urgent", priority=10).run(50).evicted == ["idles"]

    def test_policy_can_let_best_effort_pods_evict_pods_with_requests(self) -> None:
        cluster = self.full(EVICTS).pods("urgent", 2, priority=10).run(50)
        assert sorted(cluster.evicted) == ["idles", "works"]

    def test_pod_with_requests_evicts_pods_of_both_kinds(self) -> None:
        cluster = self.full(DEFAULT).pods("urgent", 2, cpu=1, priority=10).run(50)
        assert sorted(cluster.evicted) == ["idles", "works"]

    def test_best_effort_gang_breaks_no_running_gang(self) -> None:
        cluster = Scenario(DEFAULT).node("n1", cpu=8, pods=2).gang("w", 2).pods("w", 2, gang="w", cpu=1).run()
        cluster.gang("g", 2).pods("g", 2, gang="g", priority=10).run(50)
        assert cluster.evicted == []


@pytest.mark.parametrize("minimum", [1, 3])
def test_role_minima_above_the_gangs_own_are_enforced(minimum: int) -> None:
    """Volcano checks them only where minAvailable is at least their sum; here they always apply."""
    cluster = Scenario().node("n1", cpu=2).gang("g", minimum, roles=(("ps", 1), ("worker", 2)))
    cluster.pod("ps", gang="g", role="ps", cpu=1).pods("worker", 2, gang="g", role="worker", cpu=1).run()
    assert cluster.placed() == []
    assert cluster.scheduler.queue.idle
    cluster.node("n2", cpu=1).run()
    assert len(cluster.placed()) == 3
    need = cluster.state.gangs[key("g")]
    assert need.spec is not None
    assert need.spec.min_member == minimum
