"""`rescheduling`: pods are evicted from nodes with high usage for nodes with low usage."""

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
    """A node with ten CPUs of which eight are used, and an empty one; controllers create lost pods again."""
    scenario = Scenario(policy(**changes)).node("full", cpu=10).node("empty", cpu=10)
    scenario.recreates = True
    return scenario.pods("web", 8, node="full", cpu=1, more=KEPT).run()


def later(scenario: Scenario, seconds: int) -> Scenario:
    """Advance the time without another event."""
    scenario.now += seconds
    scenario.scheduler.activate_due(scenario.now)
    return scenario.settle()


class TestMoves:
    def test_pods_are_evicted_until_the_node_is_within_its_target(self) -> None:
        scenario = later(world(), 300)
        assert scenario.evicted == ["web-0", "web-1", "web-2"]
        assert scenario.spread() == {"full": 5, "empty": 3}

    def test_balanced_nodes_lose_no_pod(self) -> None:
        scenario = later(later(world(), 300), 300)
        assert len(scenario.evicted) == 3

    def test_verdict_and_eviction_message_name_the_reason(self) -> None:
        scenario = later(world(), 300)
        (first, *_) = [eviction for plan in scenario.plans for eviction in plan.evictions]
        assert first.reason is EvictionReason.RESCHEDULED
        assert first.message == "the pods of node full request 80% of its cpu, there is room on empty"

    def test_first_round_starts_an_interval_after_the_start(self) -> None:
        scenario = world()
        assert later(scenario, 250).evicted == []
        assert scenario.scheduler.next_recheck is not None
        assert scenario.now < scenario.scheduler.next_recheck <= scenario.now + 50
        scenario.restart().settle()
        assert later(scenario, 299).evicted == []
        assert len(later(scenario, 1).evicted) == 3

    def test_pod_of_the_lowest_priority_is_evicted_first_and_then_the_one_with_least_work(self) -> None:
        scenario = world()
        scenario.becomes("web-5", priority=-1).becomes("web-6", started=900).becomes("web-7", started=100)
        assert later(scenario, 300).evicted == ["web-5", "web-6", "web-7"]

    def test_fullest_node_is_relieved_first(self) -> None:
        scenario = world().node("fuller", cpu=10).pods("api", 9, node="fuller", cpu=1, more=KEPT).run()
        later(scenario, 300)
        assert [name[:3] for name in scenario.evicted] == ["api", "api", "api", "api", "web"]

    def test_pods_that_would_not_help_are_not_evicted(self) -> None:
        scenario = world().pods("idle", 3, node="full", memory="1Gi", priority=-5, more=KEPT)
        assert later(scenario, 300).evicted == ["web-0", "web-1", "web-2"]

    def test_policy_without_rescheduling_is_at_rest(self) -> None:
        scenario = later(world(), 300)
        scenario.scheduler.use(load_policy(policy().replace(", shuffle", "")))
        scenario.now += 1000
        scenario.run()
        assert scenario.scheduler.next_recheck is None


class TestNowhereToGo:
    def test_without_a_low_node_no_pod_is_evicted(self) -> None:
        scenario = world().pods("other", 3, node="empty", cpu=1)
        assert later(scenario, 300).evicted == []

    def test_cordoned_node_is_no_target(self) -> None:
        assert later(world().node("empty", cpu=10, unschedulable=True), 300).evicted == []

    def test_low_node_is_filled_up_to_its_target_only(self) -> None:
        scenario = world().node("empty", cpu=4)
        assert len(later(scenario, 300).evicted) == 2

    def test_pods_that_do_not_fit_the_low_node_are_not_evicted(self) -> None:
        scenario = Scenario(policy()).node("full", cpu=10, labels={"disk": "ssd"}).node("empty", cpu=10)
        bound = PodClass(node_selector=(("disk", "ssd"),))
        scenario.pods("web", 8, node="full", cpu=1, pod_class=bound, more=KEPT).run()
        assert later(scenario, 300).evicted == []

    def test_pods_that_the_scheduler_would_place_back_are_not_evicted(self) -> None:
        assert later(world(scores="binpack"), 300).evicted == []

    def test_pods_are_evicted_without_the_fit_check_if_it_is_off(self) -> None:
        scenario = world(scores="binpack", params="nodeFit: false")
        assert len(later(scenario, 300).evicted) == 3

    def test_minimum_number_of_low_nodes_is_required(self) -> None:
        assert later(world(params="numberOfNodes: 1"), 300).evicted == []
        assert len(later(world(params="numberOfNodes: 0"), 300).evicted) == 3


class TestExcludedPods:
    def test_pods_without_a_controller_are_not_evicted(self) -> None:
        scenario = Scenario(policy()).node("full", cpu=10).node("empty", cpu=10)
        scenario.pods("bare", 8, node="full", cpu=1).run()
        assert later(scenario, 300).evicted == []

    def test_pods_of_high_priority_are_not_evicted(self) -> None:
        scenario = world(params="thresholdPriority: 10")
        for number in range(7):
            scenario.becomes(f"web-{number}", priority=10)
        assert later(scenario, 300).evicted == ["web-7"]

    def test_members_of_the_quorum_of_a_gang_are_not_evicted(self) -> None:
        scenario = Scenario(policy()).node("full", cpu=10).node("empty", cpu=10)
        scenario.gang("gang", 7).pods("member", 8, gang="gang", node="full", cpu=1, more=KEPT).run()
        assert len(later(scenario, 300).evicted) == 1

    def test_gang_of_one_is_evicted_like_a_single_pod(self) -> None:
        scenario = Scenario(policy()).node("full", cpu=10).node("empty", cpu=10)
        for number in range(8):
            scenario.gang(f"g{number}", 1).pod(f"p{number}", gang=f"g{number}", node="full", cpu=1, more=KEPT)
        assert len(later(scenario.run(), 300).evicted) == 3

    def test_protected_and_budgeted_pods_are_not_evicted(self) -> None:
        scenario = world()
        scenario.becomes("web-0", preemptable=False)
        for number in range(1, 8):
            scenario.becomes(f"web-{number}", budgets=("web",))
        scenario.observe("budget", DisruptionBudgetUpdated(DisruptionBudget("ns", "web", allowed=1)))
        assert later(scenario, 300).evicted == ["web-1"]

    def test_pods_of_queues_outside_of_the_arguments_are_not_evicted(self) -> None:
        scenario = world(more="queueSelector: [batch]").queue("batch")
        scenario.becomes("web-4", queue="batch")
        assert later(scenario, 300).evicted == ["web-4"]


class TestArguments:
    def test_missing_metrics_are_reported(self) -> None:
        assert any("usage metrics are not supported" in text for text in load_policy(policy()).inactive)

    def test_without_targets_no_pod_is_evicted_and_a_report_says_so(self) -> None:
        text = 'actions: "shuffle"\ntiers: [{plugins: [{name: rescheduling}, {name: predicates}]}]'
        assert any("no node can exceed targetThresholds of 100" in report for report in load_policy(text).inactive)
        scenario = (
            Scenario(text).node("full", cpu=2).node("empty", cpu=2).pods("web", 2, node="full", cpu=1, more=KEPT)
        )
        assert later(later(scenario.settle(), 300), 300).evicted == []

    @pytest.mark.parametrize("more", ["labelSelector: {team: a}"])
    def test_pods_with_an_unreadable_filter_are_not_evicted(self, more: str) -> None:
        assert any("labelSelector" in text for text in load_policy(policy(more=more)).inactive)
        assert later(world(more=more), 300).evicted == []

    def test_pods_with_an_unreadable_priority_threshold_are_not_evicted(self) -> None:
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
    def test_unreadable_arguments_are_named(self, params: str, complaint: str) -> None:
        strategy = f"{{name: lowNodeUtilization, params: {params}}}"
        plugin = f"{{name: rescheduling, arguments: {{strategies: [{strategy}]}}}}"
        text = f'actions: "shuffle"\ntiers: [{{plugins: [{plugin}]}}]'
        with pytest.raises(PolicyError) as error:
            load_policy(text)
        assert complaint in str(error.value)

    def test_unknown_strategy_is_skipped_and_named(self) -> None:
        text = policy().replace("lowNodeUtilization", "highNodeUtilization")
        assert any(
            "'highNodeUtilization' is unknown and ignored" in report for report in load_policy(text).inactive
        )

    def test_documented_policy_is_valid(self) -> None:
        text = (Path(__file__).parents[2] / "docs" / "rescheduling.md").read_text(encoding="utf-8")
        found = load_policy(text.split("```yaml\n")[1].split("```")[0])
        assert "shuffle" in found.actions
        assert {entry.plugin.name for entry in found.plugins} >= {"tdm", "rescheduling"}
