"""Retries of parked units: after any change that makes other pods evictable for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import DisruptionBudgetRemoved, DisruptionBudgetUpdated

from .scenario import NAMESPACE, Scenario

STRICT = """
actions: "enqueue, allocate, preempt, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: pdb}, {name: cdp}, {name: predicates}, {name: binpack}]}]
"""
Step = Callable[[Scenario], object]


def budget(allowed: int) -> DisruptionBudgetUpdated:
    return DisruptionBudgetUpdated(DisruptionBudget(NAMESPACE, "b", allowed))


@pytest.mark.parametrize(
    ("forbid", "allow"),
    [
        (lambda s: s.becomes("low-0", preemptable=False), lambda s: s.becomes("low-0", preemptable=True)),
        (lambda s: s.becomes("low-0", budgets=("b",)), lambda s: s.becomes("low-0", budgets=())),
        (lambda s: s.becomes("low-0", budgets=("b",)), lambda s: s.observe("b", budget(1))),
        (
            lambda s: s.becomes("low-0", budgets=("b",)),
            lambda s: s.observe("b", DisruptionBudgetRemoved(NAMESPACE, "b")),
        ),
        (lambda s: s.gang("low", 1, preemptable=False), lambda s: s.gang("low", 1, preemptable=True)),
        (lambda s: s.gang("low", 1, preemptable=False), lambda s: s.no_gang("low")),
        (lambda s: s.gang("low", 1, priority=20), lambda s: s.gang("low", 1, priority=None)),
    ],
)
def test_parked_unit_preempts_when_a_veto_is_lifted(forbid: Step, allow: Step) -> None:
    scenario = Scenario(STRICT).node("n1", cpu=1).job("low", 1, cpu=1).run().observe("b", budget(0))
    forbid(scenario)
    assert scenario.run().pod("high", cpu=1, priority=10).run().evicted == []
    allow(scenario)
    assert scenario.run().evicted == ["low-0"]
    assert scenario.where("high") == "n1"


def test_parked_unit_preempts_when_a_terminating_pod_stays_after_all() -> None:
    slow: dict[str, object] = {"grace": 900}
    scenario = Scenario().node("n1", cpu=1).pod("low", cpu=1, more=slow).run()
    scenario.pod("high", cpu=1, priority=10).work()
    scenario.pod("middle", cpu=1, priority=5).work()
    scenario.gone("high").work()
    scenario.state.pods.eviction_refused("low", scenario.now)
    assert scenario.run().where("middle") == "n1"


def test_parked_unit_preempts_newer_pods_when_their_protection_expires() -> None:
    scenario = Scenario(STRICT).node("n1", cpu=2).pods("keep", 2, cpu=1, more={"preemptable": False}).run()
    scenario.pod("high", cpu=2, priority=10).run()
    for number in range(2):
        late: dict[str, object] = {"cooldown": 600 + 100 * number, "bound": scenario.now}
        scenario.gone(f"keep-{number}").pod(f"low-{number}", node="n1", cpu=1, more=late).run()
    scenario.now += 800
    scenario.scheduler.activate_due(scenario.now)
    assert scenario.run().where("high") == "n1"


def test_parked_unit_preempts_pods_placed_later_when_they_are_bound() -> None:
    scenario = Scenario().node("n1", cpu=2).pods("keep", 2, cpu=1, more={"preemptable": False}).run()
    scenario.pod("high", cpu=2, priority=10).run()
    for number in range(2):
        scenario.gone(f"keep-{number}").pod(f"low-{number}", cpu=1).work()
        assert scenario.evicted == []
        scenario.confirm().work()
    assert sorted(scenario.evicted) == ["low-0", "low-1"]
    assert scenario.run().where("high") == "n1"


def test_terminating_pods_are_not_awaited_forever() -> None:
    scenario = Scenario().nodes(2, cpu=1).pods("keep", 2, cpu=1, more={"preemptable": False}).run()
    scenario.pod("high", cpu=1, priority=10).run()
    scenario.becomes("keep-0", preemptable=True, terminating=True, leaves=scenario.now + 30).run()
    scenario.becomes("keep-1", preemptable=True).run()
    assert scenario.evicted == []
    alarm = scenario.scheduler.next_recheck
    assert alarm is not None
    scenario.now = int(alarm) + 1
    scenario.scheduler.activate_due(scenario.now)
    assert scenario.work().evicted == ["keep-1"]


def test_protected_pod_does_not_exclude_pods_of_the_same_class() -> None:
    scenario = Scenario().node("n1", cpu=2).pods("low", 2, cpu=1).run()
    scenario.pod("never", cpu=1, priority=9, more={"preempts": False}).pod("no", cpu=3, priority=9).run()
    scenario.becomes("low-0", preemptable=False).run()
    scenario.pod("high", cpu=1, priority=10).run()
    assert scenario.evicted == ["low-1"]
    assert scenario.where("high") == "n1"


def test_unit_without_victims_does_not_block_the_units_behind_it() -> None:
    scenario = Scenario().node("n1", cpu=1).pod("low", cpu=1, more={"preemptable": False}).run()
    scenario.pod("meek", cpu=1, priority=20, more={"preempts": False}).pod("high", cpu=1, priority=10).run()
    scenario.becomes("low", preemptable=True).run()
    assert scenario.evicted == ["low"]


def test_pod_without_a_node_that_leaves_its_quota_outdates_the_verdicts_of_the_quota() -> None:
    scenario = Scenario().elastic_quota(NAMESPACE, {"cpu": 2}, {"cpu": 2}).node("n1", cpu=1).node("n2", cpu=2)
    scenario.pod("unconfirmed", cpu=2).work()
    scenario.no_node("n2").pod("waiting", cpu=2).work()
    assert scenario.why_pod("waiting").code == "QuotaExceeded"
    scenario.gone("unconfirmed").work()
    assert scenario.why_pod("waiting").code == "NotEnoughResources"


def test_pod_without_a_node_that_leaves_its_quota_lets_waiting_pods_preempt() -> None:
    scenario = Scenario(STRICT).elastic_quota(NAMESPACE, {"cpu": 2}, {"cpu": 2}).node("n1", cpu=2).node("n2", cpu=1)
    scenario.pod("low", node="n1", cpu=1).run()
    scenario.no_node("n1").pod("unconfirmed", cpu=1).work()
    scenario.node("n1", cpu=2).no_node("n2").pod("high", cpu=2, priority=10).work()
    assert scenario.evicted == []
    scenario.gone("unconfirmed").work()
    assert scenario.evicted == ["low"]
