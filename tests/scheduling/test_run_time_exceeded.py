"""Who runs longer than he may: reported, evicted when somebody needs the room, or killed, as the policy says."""

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
    """What a cycle so many seconds after the beginning evicts."""
    world.now = 1000 + seconds
    world.scheduler.activate_due(world.now)
    return sorted(evict.name for evict in world.cycle().evictions)


def test_report_evicts_nobody() -> None:
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


def test_a_gang_goes_as_a_whole() -> None:
    world = Scenario(policy("kill")).node("n", cpu=4).gang("g", 2)
    running(world, "g-0", "n", 60, gang="g")
    running(world, "g-1", "n", 60, gang="g", more={"started": 1030})
    running(world, "other", "n", 600)
    assert at(world, 60) == ["g-0", "g-1"]


def test_a_limit_cannot_be_vetoed_by_whom_it_ends() -> None:
    world = running(Scenario(policy("kill")).node("n", cpu=2), "a", "n", 60, more={"preemptable": False})
    assert at(world, 60) == ["a"]


def test_pods_of_others_and_of_their_nodes_are_never_ended() -> None:
    world = Scenario(policy("kill")).node("n", cpu=4)
    running(world, "foreign", "n", 60, scheduler="default-scheduler")
    running(world, "fixture", "n", 60, more={"fixture": True})
    assert at(world, 100) == []


def test_who_may_run_longer_after_all_stays() -> None:
    world = running(Scenario(policy("kill")).node("n", cpu=2), "a", "n", 60)
    world.becomes("a", run_time=RunTime(allowed=600))
    assert world.scheduler.next_recheck == 1600
    assert at(world, 100) == []
    world.becomes("a", run_time=RunTime())
    assert world.scheduler.next_recheck is None


def test_nobody_goes_while_nobody_waits() -> None:
    world = running(Scenario(policy("evict-when-needed")).node("n", cpu=1), "a", "n", 60)
    assert at(world, 100) == []
    world.pod("b", cpu=1)
    assert at(world, 101) == ["a"]


def test_who_waits_gets_the_room_when_the_time_of_another_is_over() -> None:
    world = running(Scenario(policy("evict-when-needed")).node("n", cpu=1), "a", "n", 60).pod("b", cpu=1)
    assert at(world, 30) == []
    assert at(world, 60) == ["a"]


def test_nobody_goes_for_whom_that_does_not_help() -> None:
    world = running(Scenario(policy("evict-when-needed")).node("n", cpu=2), "a", "n", 60).pod("b", cpu=3)
    assert at(world, 60) == []


def test_only_as_many_go_as_are_needed_and_the_longest_overdue_first() -> None:
    world = Scenario(policy("evict-when-needed")).node("n", cpu=2)
    running(world, "a", "n", 60)
    running(world, "b", "n", 30)
    world.pod("c", cpu=1)
    assert at(world, 100) == ["b"]
    # It is on its way: nobody else goes for the same.
    assert at(world, 120) == []


def test_a_budget_keeps_whom_somebody_would_merely_like_to_replace() -> None:
    world = running(Scenario(policy("evict-when-needed")).node("n", cpu=1), "a", "n", 60, more={"budgets": ("b",)})
    world.observe("a", DisruptionBudgetUpdated(DisruptionBudget(NAMESPACE, "b", 0)))
    world.pod("c", cpu=1)
    assert at(world, 60) == []


def test_a_policy_says_one_of_three_words() -> None:
    with pytest.raises(
        PolicyError, match=r"exceededRunTimes: 'shoot' is unknown; expected report, evict-when-needed or kill"
    ):
        load_policy(policy("shoot"))
