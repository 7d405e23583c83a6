"""Wait or preempt: the policy limits the cost of evictions for units that start soon by themselves."""

from __future__ import annotations

import pytest

from .scenario import Scenario
from .test_reserve import busy, lasting, plan_of, runs_for, start_of, waiting

pytestmark = pytest.mark.feature("start-reservations")


def policy(**arguments: object) -> str:
    stated = ", ".join(f"{key}: {value}" for key, value in ({"startDelaySeconds": 0} | arguments).items())
    return f"""
actions: "enqueue, allocate, reserve, preempt, backfill"
tiers: [{{plugins: [{{name: priority}}, {{name: gang}}, {{name: predicates}}]}}]
configurations: [{{name: reserve, arguments: {{{stated}}}}}]
"""


def world(ends: int = 100, **arguments: object) -> Scenario:
    """Add an urgent pod while a pod runs that ends `ends` seconds after the beginning."""
    made = Scenario(policy(**arguments)).node("a", cpu=4)
    busy(made, "runs", "a", ends, cpu=4)
    return waiting(made, "important", 50, cpu=4, priority=1000)


class TestUnitsThatStartSoon:
    def test_without_a_limit_in_the_policy_pods_are_evicted(self) -> None:
        assert world().settle().evicted == ["runs"]

    def test_reserved_start_of_the_preemptor_does_not_block_its_preemption(self) -> None:
        """It runs beyond the start reserved for it, on the node of its victims."""
        made = Scenario(policy()).node("a", cpu=4)
        busy(made, "runs", "a", 100, cpu=4)
        waiting(made, "important", 500, cpu=4, priority=1000)
        assert made.settle().evicted == ["runs"]

    def test_surplus_is_evicted_before_a_gang_also_where_a_start_is_reserved(self) -> None:
        """The surplus members are on the node whose start is reserved: that node becomes free first."""
        made = Scenario(policy()).node("a", cpu=8).node("b", cpu=4)
        busy(made, "short", "a", 100, cpu=4, priority=1000)
        for name, minimum, count, size, node in (("spare", 1, 4, 1, "a"), ("whole", 2, 2, 2, "b")):
            made.gang(name, minimum)
            for number in range(count):
                busy(made, f"{name}-{number}", node, 10_000, gang=name, cpu=size)
        made.gang("hotfix", 1)
        waiting(made, "hotfix-0", 500, gang="hotfix", cpu=2, priority=1000)
        made.settle()
        assert sorted(name.rpartition("-")[0] for name in made.evicted) == ["spare", "spare"]

    def test_no_pod_is_evicted_for_a_unit_that_starts_within_the_time(self) -> None:
        made = world(waitInsteadSeconds=100).settle()
        assert made.evicted == []
        assert start_of(made, "important") == 100
        assert "so soon that no pod is evicted for it" in made.why_pod("important").message

    def test_unit_that_would_wait_longer_preempts(self) -> None:
        assert world(waitInsteadSeconds=99).settle().evicted == ["runs"]

    def test_unit_blocked_by_queue_order_gets_no_promise(self) -> None:
        """There is room, but the queue is strictly ordered: the start of its head is unknown."""
        made = Scenario(policy(waitInsteadSeconds=1000)).node("a", cpu=4).queue("default", fifo=True)
        busy(made, "runs", "a", 10_000, cpu=2, priority=2000)
        waiting(made, "first", 50, cpu=8, priority=1000)
        waiting(made, "second", 50, cpu=2, priority=1000)
        made.settle()
        assert made.why_pod("second").code == "BehindInQueue"
        assert start_of(made, "second") is None

    def test_unknown_end_of_a_pod_is_not_waited_for(self) -> None:
        made = Scenario(policy(waitInsteadSeconds=10**6)).node("a", cpu=4).pod("runs", node="a", cpu=4)
        waiting(made, "important", 50, cpu=4, priority=1000)
        assert made.settle().evicted == ["runs"]

    def test_waiting_preemptor_gets_a_reserved_start_beyond_the_depth(self) -> None:
        made = Scenario(policy(waitInsteadSeconds=1000)).node("a", cpu=4).node("b", cpu=4)
        busy(made, "one", "a", 100, cpu=4)
        busy(made, "two", "b", 200, cpu=4)
        waiting(made, "first", 50, cpu=4, priority=1000)
        waiting(made, "second", 50, cpu=4, priority=1000)
        made.settle()
        assert made.evicted == []
        assert [start_of(made, name) for name in ("first", "second")] == [100, 150]
        assert len(plan_of(made)) == 2

    def test_preemptor_evicts_after_all_when_its_start_moves_beyond_the_time(self) -> None:
        made = Scenario(policy(waitInsteadSeconds=150)).node("a", cpu=4).node("b", cpu=4)
        busy(made, "one", "a", 100, cpu=4)
        busy(made, "two", "b", 1000, cpu=4)
        waiting(made, "important", 50, cpu=4, priority=1000)
        made.settle()
        assert made.evicted == []
        made.no_node("a").settle()
        assert made.evicted == ["two"]


class TestCostOfEvictions:
    def late(self, **arguments: object) -> Scenario:
        """The pod has run for 900 seconds, and would run for 100 more."""
        made = Scenario(policy(**arguments)).node("a", cpu=4)
        made.now += 900
        made.pod(
            "runs",
            node="a",
            cpu=4,
            pod_class=runs_for(1000),
            more={**lasting(1000), "started": 1000, "bound": 1000},
        )
        return waiting(made, "important", 50, cpu=4, priority=1000)

    def test_no_pod_is_evicted_whose_lost_work_exceeds_the_saved_time(self) -> None:
        made = self.late(maxLostWorkPercent=100).settle()
        assert made.evicted == []
        assert start_of(made, "important") == 1000
        assert "no pod is evicted for it" in made.why_pod("important").message

    def test_pod_with_little_lost_work_is_evicted(self) -> None:
        assert self.late(maxLostWorkPercent=900).settle().evicted == ["runs"]
        assert self.late(maxLostWorkPercent=899).settle().evicted == []
