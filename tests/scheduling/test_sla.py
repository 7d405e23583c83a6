"""`sla`: deadlines decide the order, and admit groups that have waited too long."""

from __future__ import annotations

import pytest

from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import load_policy

from .scenario import Scenario, amounts


def policy(argument: str = "") -> str:
    arguments = f", arguments: {{sla-waiting-time: {argument}}}" if argument else ""
    return f"""
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{{name: sla{arguments}}}]
- plugins: [{{name: overcommit}}, {{name: predicates}}, {{name: nodeorder}}]
"""


def queued(world: Scenario, name: str, gpu: int, created: int, wait: int | None = None) -> Scenario:
    """A Volcano PodGroup that waits for its admission."""
    fields = {"admission": True, "admitted": False, "created": created, "sla_waiting_time": wait}
    return world.gang(name, 1, min_resources=amounts(gpu=gpu), **fields)


def after(world: Scenario, seconds: int) -> Scenario:
    """Advance the time without another event."""
    world.now += seconds
    world.scheduler.activate_due(world.now)
    return world.run()


class TestOrder:
    def test_group_with_the_earliest_deadline_is_first(self) -> None:
        world = Scenario(policy()).node("n1", gpu=1)
        world.job("older", 1, gpu=1).job("urgent", 1, gpu=1)
        world.gang("older", 1, created=100, sla_waiting_time=900).gang(
            "urgent", 1, created=200, sla_waiting_time=10
        )
        assert world.run().placed() == ["urgent-0"]

    def test_group_without_a_deadline_is_last(self) -> None:
        world = Scenario(policy()).node("n1", gpu=1).job("older", 1, gpu=1).job("dated", 1, gpu=1)
        world.gang("older", 1, created=1).gang("dated", 1, created=900, sla_waiting_time=10**6)
        assert world.run().placed() == ["dated-0"]

    def test_argument_applies_to_groups_without_a_waiting_time_of_their_own(self) -> None:
        world = Scenario(policy("1h")).node("n1", gpu=1).job("own", 1, gpu=1).job("common", 1, gpu=1)
        world.gang("own", 1, created=100, sla_waiting_time=2 * 3600).gang("common", 1, created=200)
        assert world.run().placed() == ["common-0"]

    def test_group_of_unknown_age_has_no_deadline(self) -> None:
        world = Scenario(policy("1h")).node("n1", gpu=1).job("ageless", 1, gpu=1).job("dated", 1, gpu=1)
        world.gang("ageless", 1, created=0).gang("dated", 1, created=900)
        assert world.run().placed() == ["dated-0"]


class TestAdmission:
    def test_overdue_groups_are_admitted_whatever_later_tiers_vote(self) -> None:
        world = queued(Scenario(policy()).node("n1", gpu=4), "large", 99, created=1000, wait=60).run()
        assert world.admissions == []
        assert world.scheduler.next_recheck == 1060
        assert after(world, 30).admissions == []
        assert after(world, 60).admissions == ["large"]

    def test_deadline_of_one_group_admits_no_other_group(self) -> None:
        world = Scenario(policy()).node("n1", gpu=4)
        for name, wait in (("soon", 60), ("late", 6000), ("never", None)):
            queued(world, name, 99, created=1000, wait=wait)
        world.run()
        assert after(world, 100).admissions == ["soon"]
        assert after(world, 6000).admissions == ["soon", "late"]
        # (Its announced amounts are released when no pod is created; they exceeded the cluster and admit no other
        # group.)
        assert after(world, 301).admissions == ["soon", "late"]
        assert world.scheduler.next_recheck is None

    def test_rejection_in_the_same_tier_overrides_the_deadline(self) -> None:
        same = """
actions: "enqueue, allocate"
tiers: [{plugins: [{name: sla}, {name: overcommit}, {name: predicates}]}]
"""
        world = queued(Scenario(same).node("n1", gpu=4), "large", 99, created=1000, wait=60).run()
        assert after(world, 100).admissions == []


@pytest.mark.parametrize("value", ["soon", "0s", "-1h", "5"])
def test_text_that_is_no_duration_is_refused(value: str) -> None:
    with pytest.raises(PolicyError, match=r"sla\): argument sla-waiting-time: .* is not a duration above 0"):
        load_policy(policy(f'"{value}"'))
