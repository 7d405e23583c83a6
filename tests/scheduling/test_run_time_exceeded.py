"""Pods that exceed their run time: reported, evicted when another unit needs the room, or killed, by the policy."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.model.decisions import EvictionReason
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import DisruptionBudgetUpdated
from phalanx.model.run_time import RunTime
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import load_policy

from .scenario import NAMESPACE, Scenario

pytestmark = pytest.mark.feature("run-times")


def policy(exceeded: str) -> str:
    return f"""
actions: "enqueue, allocate, backfill"
tiers: [{{plugins: [{{name: priority}}, {{name: gang}}, {{name: predicates}}, {{name: pdb}}]}}]
phalanx: {{exceededRunTimes: {exceeded}}}
"""


def running(world: Scenario, name: str, node: str, allowed: int, **fields: Any) -> Scenario:
    """A pod that runs since second 1000, the beginning of the scenario."""
    run_time = RunTime(allowed=allowed, allowed_source="Queue lab: annotation phalanx.dev/max-run-time")
    more = {"run_time": run_time, "started": 1000, "bound": 1000, **fields.pop("more", {})}
    return world.pod(name, node=node, cpu=1, more=more, **fields)


def at(world: Scenario, seconds: int) -> list[str]:
    """Return the pods that a cycle this number of seconds after the beginning evicts."""
    world.now = 1000 + seconds
    world.scheduler.activate_due(world.now)
    return sorted(evict.name for evict in world.cycle().evictions)


def test_report_evicts_no_pod() -> None:
    world = running(Scenario(policy("report")).node("n", cpu=1), "a", "n", 60).pod("b", cpu=1)
    assert world.scheduler.next_recheck is None
    assert at(world, 100) == []


def test_kill_evicts_when_the_time_is_over_and_wakes_for_it() -> None:
    world = running(Scenario(policy("kill")).node("n", cpu=2), "a", "n", 60)
    assert world.scheduler.next_recheck == 1060
    assert at(world, 59) == []
    world.now = 1060
    world.scheduler.activate_due(world.now)
    assert not world.scheduler.idle
    (evict,) = world.cycle().evictions
    assert (evict.name, evict.reason) == ("a", EvictionReason.REVOKED)
    assert evict.message == "it runs longer than the 1m of Queue lab: annotation phalanx.dev/max-run-time"
    assert at(world, 61) == []


def test_gang_beyond_its_run_time_is_evicted_as_a_whole() -> None:
    world = Scenario(policy("kill")).node("n", cpu=4).gang("g", 2)
    running(world, "g-0", "n", 60, gang="g")
    running(world, "g-1", "n", 60, gang="g", more={"started": 1030})
    running(world, "other", "n", 600)
    assert at(world, 60) == ["g-0", "g-1"]


def test_owner_of_a_pod_cannot_veto_its_run_time_limit() -> None:
    world = running(Scenario(policy("kill")).node("n", cpu=2), "a", "n", 60, more={"preemptable": False})
    assert at(world, 60) == ["a"]


def test_pods_of_other_schedulers_and_daemon_sets_are_not_killed() -> None:
    world = Scenario(policy("kill")).node("n", cpu=4)
    running(world, "foreign", "n", 60, scheduler="default-scheduler")
    running(world, "fixture", "n", 60, more={"fixture": True})
    assert at(world, 100) == []


def test_pod_whose_limit_was_raised_is_not_killed() -> None:
    world = running(Scenario(policy("kill")).node("n", cpu=2), "a", "n", 60)
    world.becomes("a", run_time=RunTime(allowed=600))
    assert world.scheduler.next_recheck == 1600
    assert at(world, 100) == []
    world.becomes("a", run_time=RunTime())
    assert world.scheduler.next_recheck is None


def test_no_pod_is_evicted_while_no_unit_waits() -> None:
    world = running(Scenario(policy("evict-when-needed")).node("n", cpu=1), "a", "n", 60)
    assert at(world, 100) == []
    world.pod("b", cpu=1)
    assert at(world, 101) == ["a"]


def test_waiting_unit_gets_the_room_of_a_pod_beyond_its_run_time() -> None:
    world = running(Scenario(policy("evict-when-needed")).node("n", cpu=1), "a", "n", 60).pod("b", cpu=1)
    assert at(world, 30) == []
    assert at(world, 60) == ["a"]


def test_no_pod_is_evicted_for_a_unit_that_would_not_fit() -> None:
    world = running(Scenario(policy("evict-when-needed")).node("n", cpu=2), "a", "n", 60).pod("b", cpu=3)
    assert at(world, 60) == []


def test_only_the_necessary_number_is_evicted_and_the_longest_overdue_first() -> None:
    world = Scenario(policy("evict-when-needed")).node("n", cpu=2)
    running(world, "a", "n", 60)
    running(world, "b", "n", 30)
    world.pod("c", cpu=1)
    assert at(world, 100) == ["b"]
    # It is terminating: no other pod is evicted for the same unit.
    assert at(world, 120) == []


def test_disruption_budget_protects_an_overdue_pod_from_replacement() -> None:
    world = running(Scenario(policy("evict-when-needed")).node("n", cpu=1), "a", "n", 60, more={"budgets": ("b",)})
    world.observe("a", DisruptionBudgetUpdated(DisruptionBudget(NAMESPACE, "b", 0)))
    world.pod("c", cpu=1)
    assert at(world, 60) == []


def test_policy_accepts_one_of_three_values() -> None:
    with pytest.raises(
        PolicyError, match=r"exceededRunTimes: 'shoot' is unknown; expected report, evict-when-needed or kill"
    ):
        load_policy(policy("shoot"))


def test_pod_that_is_evicted_already_does_not_stop_the_eviction_of_others() -> None:
    preempting = policy("kill").replace("allocate,", "allocate, preempt,")
    world = running(Scenario(preempting).node("n", cpu=2), "a", "n", 60)
    running(world, "b", "n", 90, priority=100)
    world.pod("high", cpu=1, priority=10)
    assert at(world, 30) == ["a"]
    assert at(world, 91) == ["b"]
