"""`rescheduling`: pods leave nodes that carry too much for nodes that carry little."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.model.decisions import EvictionReason
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import DisruptionBudgetUpdated
from phalanx.model.pod import PodClass
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import load_policy

from .scenario import Scenario

POLICY = """
actions: "enqueue, allocate, backfill, shuffle"
tiers:
- plugins: [{{name: gang}}, {{name: conformance}}]
- plugins:
  - name: rescheduling
    arguments:
      interval: 5m
      {more}
      strategies:
      - name: lowNodeUtilization
        params: {{thresholds: {{cpu: 30}}, targetThresholds: {{cpu: 50}}, {params}}}
  - {{name: predicates}}
  - {{name: {scores}}}
"""
KEPT = {"controller": "owner"}


def policy(more: str = "", params: str = "", scores: str = "nodeorder") -> str:
    return POLICY.format(more=more, params=params, scores=scores)


def world(**changes: str) -> Scenario:
    """A node with ten CPUs of which eight are taken, and one that is empty; controllers make lost pods anew."""
    scenario = Scenario(policy(**changes)).node("full", cpu=10).node("empty", cpu=10)
    scenario.recreates = True
    return scenario.pods("web", 8, node="full", cpu=1, more=KEPT).run()


def later(scenario: Scenario, seconds: int) -> Scenario:
    """Time passes and nothing else happens."""
    scenario.now += seconds
    scenario.scheduler.activate_due(scenario.now)
    return scenario.settle()


class TestMoves:
    def test_pods_leave_until_the_node_is_within_its_target(self) -> None:
        scenario = later(world(), 300)
        assert scenario.evicted == ["web-0", "web-1", "web-2"]
        assert scenario.spread() == {"full": 5, "empty": 3}

    def test_what_is_even_stays(self) -> None:
        scenario = later(later(world(), 300), 300)
        assert len(scenario.evicted) == 3

    def test_everybody_is_told_why(self) -> None:
        scenario = later(world(), 300)
        (first, *_) = [eviction for plan in scenario.plans for eviction in plan.evictions]
        assert first.reason is EvictionReason.RESCHEDULED
        assert first.message == "the pods of node full request 80% of its cpu, there is room on empty"

    def test_the_first_round_comes_an_interval_after_the_start(self) -> None:
        scenario = world()
        assert later(scenario, 250).evicted == []
        assert scenario.scheduler.next_recheck is not None
        assert scenario.now < scenario.scheduler.next_recheck <= scenario.now + 50
        scenario.restart().settle()
        assert later(scenario, 299).evicted == []
        assert len(later(scenario, 1).evicted) == 3

    def test_the_least_important_pod_goes_first_and_of_equals_the_one_that_lost_least(self) -> None:
        scenario = world()
        scenario.becomes("web-5", priority=-1).becomes("web-6", started=900).becomes("web-7", started=100)
        assert later(scenario, 300).evicted == ["web-5", "web-6", "web-7"]

    def test_the_fullest_node_goes_first(self) -> None:
        scenario = world().node("fuller", cpu=10).pods("api", 9, node="fuller", cpu=1, more=KEPT).run()
        later(scenario, 300)
        assert [name[:3] for name in scenario.evicted] == ["api", "api", "api", "api", "web"]

    def test_pods_that_would_not_help_stay(self) -> None:
        scenario = world().pods("idle", 3, node="full", memory="1Gi", priority=-5, more=KEPT)
        assert later(scenario, 300).evicted == ["web-0", "web-1", "web-2"]

    def test_a_policy_that_no_longer_moves_anybody_is_at_rest(self) -> None:
        scenario = later(world(), 300)
        scenario.scheduler.use(load_policy(policy().replace(", shuffle", "")))
        scenario.now += 1000
        scenario.run()
        assert scenario.scheduler.next_recheck is None


class TestNowhereToGo:
    def test_without_a_low_node_nothing_moves(self) -> None:
        scenario = world().pods("other", 3, node="empty", cpu=1)
        assert later(scenario, 300).evicted == []

    def test_a_cordoned_node_takes_nobody(self) -> None:
        assert later(world().node("empty", cpu=10, unschedulable=True), 300).evicted == []

    def test_a_low_node_is_filled_up_to_its_target_only(self) -> None:
        scenario = world().node("empty", cpu=4)
        assert len(later(scenario, 300).evicted) == 2

    def test_pods_that_the_low_node_does_not_take_stay(self) -> None:
        scenario = Scenario(policy()).node("full", cpu=10, labels={"disk": "ssd"}).node("empty", cpu=10)
        bound = PodClass(node_selector=(("disk", "ssd"),))
        scenario.pods("web", 8, node="full", cpu=1, pod_class=bound, more=KEPT).run()
        assert later(scenario, 300).evicted == []

    def test_pods_that_the_scheduler_would_put_back_stay(self) -> None:
        assert later(world(scores="binpack"), 300).evicted == []

    def test_unless_nobody_asks_where_they_fit(self) -> None:
        scenario = world(scores="binpack", params="nodeFit: false")
        assert len(later(scenario, 300).evicted) == 3

    def test_at_least_so_many_nodes_must_be_low(self) -> None:
        assert later(world(params="numberOfNodes: 1"), 300).evicted == []
        assert len(later(world(params="numberOfNodes: 0"), 300).evicted) == 3


class TestWhoStays:
    def test_pods_that_nobody_would_make_again(self) -> None:
        scenario = Scenario(policy()).node("full", cpu=10).node("empty", cpu=10)
        scenario.pods("bare", 8, node="full", cpu=1).run()
        assert later(scenario, 300).evicted == []

    def test_important_pods(self) -> None:
        scenario = world(params="thresholdPriority: 10")
        for number in range(7):
            scenario.becomes(f"web-{number}", priority=10)
        assert later(scenario, 300).evicted == ["web-7"]

    def test_members_that_their_gang_needs(self) -> None:
        scenario = Scenario(policy()).node("full", cpu=10).node("empty", cpu=10)
        scenario.gang("gang", 7).pods("member", 8, gang="gang", node="full", cpu=1, more=KEPT).run()
        assert len(later(scenario, 300).evicted) == 1

    def test_but_a_gang_of_one_is_a_pod_like_any_other(self) -> None:
        scenario = Scenario(policy()).node("full", cpu=10).node("empty", cpu=10)
        for number in range(8):
            scenario.gang(f"g{number}", 1).pod(f"p{number}", gang=f"g{number}", node="full", cpu=1, more=KEPT)
        assert len(later(scenario.run(), 300).evicted) == 3

    def test_what_is_spared_or_budgeted(self) -> None:
        scenario = world()
        scenario.becomes("web-0", preemptable=False)
        for number in range(1, 8):
            scenario.becomes(f"web-{number}", budgets=("web",))
        scenario.observe("budget", DisruptionBudgetUpdated(DisruptionBudget("ns", "web", allowed=1)))
        assert later(scenario, 300).evicted == ["web-1"]

    def test_pods_of_other_queues_than_those_that_are_named(self) -> None:
        scenario = world(more="queueSelector: [batch]").queue("batch")
        scenario.becomes("web-4", queue="batch")
        assert later(scenario, 300).evicted == ["web-4"]


class TestArguments:
    def test_that_there_are_no_metrics_is_said(self) -> None:
        assert any("usage metrics are not supported" in text for text in load_policy(policy()).inactive)

    def test_without_targets_nothing_moves_and_that_is_said(self) -> None:
        text = 'actions: "shuffle"\ntiers: [{plugins: [{name: rescheduling}, {name: predicates}]}]'
        assert any("no node can exceed targetThresholds of 100" in report for report in load_policy(text).inactive)
        scenario = (
            Scenario(text).node("full", cpu=2).node("empty", cpu=2).pods("web", 2, node="full", cpu=1, more=KEPT)
        )
        assert later(later(scenario.settle(), 300), 300).evicted == []

    @pytest.mark.parametrize("more", ["labelSelector: {team: a}"])
    def test_whom_it_cannot_tell_apart_it_does_not_move(self, more: str) -> None:
        assert any("labelSelector" in text for text in load_policy(policy(more=more)).inactive)
        assert later(world(more=more), 300).evicted == []

    def test_nor_those_whose_importance_it_cannot_tell(self) -> None:
        params = "thresholdPriorityClassName: mine"
        assert any("'mine' is not resolved" in text for text in load_policy(policy(params=params)).inactive)
        assert later(world(params=params), 300).evicted == []
        assert len(later(world(params=params + ", thresholdPriority: 10"), 300).evicted) == 3

    @pytest.mark.parametrize(
        ("params", "complaint"),
        [
            ("{thresholds: {cpu: low}}", "thresholds: argument cpu: 'low' is not a number"),
            ("{nodeFitt: true}", "unknown key 'nodeFitt'"),
            ("{numberOfNodes: -1}", "numberOfNodes: -1 is not a whole number of at least 0"),
            ("5", "argument params: 5 is not a mapping"),
        ],
    )
    def test_what_cannot_be_read_is_named(self, params: str, complaint: str) -> None:
        strategy = f"{{name: lowNodeUtilization, params: {params}}}"
        plugin = f"{{name: rescheduling, arguments: {{strategies: [{strategy}]}}}}"
        text = f'actions: "shuffle"\ntiers: [{{plugins: [{plugin}]}}]'
        with pytest.raises(PolicyError) as error:
            load_policy(text)
        assert complaint in str(error.value)

    def test_an_unknown_strategy_is_passed_over_and_named(self) -> None:
        text = policy().replace("lowNodeUtilization", "highNodeUtilization")
        assert any(
            "'highNodeUtilization' is unknown and ignored" in report for report in load_policy(text).inactive
        )

    def test_the_documented_policy_is_one(self) -> None:
        text = (Path(__file__).parents[2] / "docs" / "rescheduling.md").read_text(encoding="utf-8")
        found = load_policy(text.split("```yaml\n")[1].split("```")[0])
        assert "shuffle" in found.actions
        assert {entry.plugin.name for entry in found.plugins} >= {"tdm", "rescheduling"}
