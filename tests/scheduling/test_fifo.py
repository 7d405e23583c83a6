"""Strict FIFO queues: which heads block the queue, whatever their age and whichever process plans."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from phalanx.model.pod import PodClass
from phalanx.model.volumes import UnusableVolume

from .scenario import Scenario, amounts

SSD = PodClass(node_selector=(("disk", "ssd"),))
NO_CLAIM = PodClass(volumes=(UnusableVolume("persistentvolumeclaim none not found"),))
WITHOUT_EVICTIONS = """
actions: "enqueue, allocate"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}]}]
"""

Step = Callable[[Scenario], object]


def world() -> Scenario:
    return Scenario().node("n1", cpu=4).queue("q", fifo=True).queue("other")


def second(scenario: Scenario) -> Scenario:
    return scenario.pod("second", queue="q", cpu=1)


def in_every_order(head: Step) -> list[Scenario]:
    """Worlds in which the head arrived a cycle before the second pod, with it, or before a restart."""
    before, beside, after = world(), world(), world()
    head(before)
    before.run()
    second(before).run()
    head(beside)
    beside.now += 1
    second(beside).run()
    head(after)
    after.now += 1
    second(after).run()
    after.restart().run()
    return [before, beside, after]


def group(
    scenario: Scenario, name: str, minimum: int = 1, cpu: int = 1, *, admitted: bool = False, **fields: object
) -> Scenario:
    size = amounts(cpu=cpu * minimum)
    known = {"queue": "q", "admission": True, "admitted": admitted, "created": scenario.now, "min_resources": size}
    return scenario.gang(name, minimum, **known | fields)


class TestQueueThatBeginsToKeepItsOrder:
    def test_unit_that_waits_already_holds_up_a_younger_one(self) -> None:
        scenario = Scenario().node("n1", cpu=4).queue("q").pod("first", queue="q", cpu=9).settle()
        second(scenario.queue("q", fifo=True).settle()).settle()
        assert scenario.where("second") == scenario.restart().settle().where("second") == ""

    def test_units_behind_the_first_one_are_told_so(self) -> None:
        scenario = Scenario().node("n1", cpu=4).queue("q").pod("first", queue="q", cpu=9)
        scenario.job("gang", 2, queue="q", cpu=8).pods("pod", 3, queue="q", cpu=8).settle()
        scenario.queue("q", fifo=True).settle()
        verdicts = [scenario.why("gang"), *(scenario.why_pod(f"pod-{number}") for number in range(3))]
        assert [verdict.code for verdict in verdicts] == ["BehindInQueue"] * 4

    def test_group_without_pods_is_not_admitted_before_a_unit_that_waits_already(self) -> None:
        scenario = Scenario().node("n1", cpu=4).queue("q").pod("first", queue="q", cpu=9).settle()
        group(scenario.queue("q", fifo=True), "later").settle()
        assert not scenario.admissions


class TestHeads:
    @pytest.mark.parametrize(
        "head",
        [
            lambda world: world.pod("first", queue="q", cpu=9),
            lambda world: world.pod("first", queue="q", pod_class=SSD),
            lambda world: world.pod("first", queue="q", pod_class=SSD, cpu=1),
            lambda world: world.job("first", 2, queue="q", cpu=3),
            lambda world: group(world, "first", cpu=99),
            lambda world: world.queue("q", fifo=True, capability={"cpu": 2}).pod("first", queue="q", cpu=3),
        ],
        ids=["cpu", "best effort", "selector", "gang", "group without admission", "quota"],
    )
    def test_head_that_lacks_nodes_or_quota_holds_up_the_queue(self, head: Step) -> None:
        for each in in_every_order(head):
            assert "second" in each.waiting()
            assert each.why_pod("second").code == "BehindInQueue"

    @pytest.mark.parametrize(
        "head",
        [
            lambda world: world.pod("first", queue="q", cpu=1, pod_class=NO_CLAIM),
            lambda world: world.pod("first", queue="q", pod_class=NO_CLAIM),
            lambda world: world.job("first", 2, queue="q", cpu=1, pod_class=NO_CLAIM),
            lambda world: (
                world.gang("first", 2, queue="q")
                .pod("first-0", gang="first", cpu=1)
                .pod("first-1", gang="first", cpu=1, pod_class=NO_CLAIM)
            ),
            lambda world: world.pod("first", queue="q", cpu=1, gated=True),
            lambda world: world.gang("first", 2, queue="q").pod("first-0", gang="first", cpu=1),
            lambda world: world.job("first", 2, queue="q", cpu=1, gated=True),
            lambda world: world.pod("first", queue="q", cpu=1, problem="unreadable"),
            lambda world: world.pod("first", queue="q", cpu=1, pod_class=PodClass(unsupported=("spec.odd",))),
        ],
        ids=[
            "claim",
            "best effort claim",
            "gang with claims",
            "gang with a claim",
            "gate",
            "missing member",
            "gang with gates",
            "unreadable",
            "unsupported",
        ],
    )
    def test_head_that_waits_for_neither_nodes_nor_quota_does_not_block_the_queue(self, head: Step) -> None:
        for each in in_every_order(head):
            assert each.placed("second") == ["second"]
            assert each.placed("first") == []

    def test_gang_that_can_start_without_its_unready_member_holds_up_the_queue(self) -> None:
        def head(scenario: Scenario) -> None:
            scenario.gang("first", 2, queue="q").pods("first", 2, gang="first", cpu=3)
            scenario.pod("unready", gang="first", cpu=1, pod_class=NO_CLAIM)

        for each in in_every_order(head):
            assert each.waiting("second") == ["second"]

    def test_head_is_still_first_when_its_claim_exists(self) -> None:
        scenario = world().pod("first", queue="q", cpu=3, pod_class=NO_CLAIM).run()
        scenario.pod("busy", queue="other", cpu=2).run()
        scenario.pod("first", queue="q", cpu=3, created=1000).run()
        second(scenario).run()
        assert scenario.waiting() == ["first", "second"]

    @pytest.mark.parametrize(
        "change",
        [
            lambda world: world.gone("first"),
            lambda world: world.pod("first", queue="other", cpu=9, created=1000),
            lambda world: world.pod("first", queue="q", cpu=9, created=1000, problem="unreadable"),
            lambda world: world.pod("first", queue="q", cpu=9, created=1000, pod_class=NO_CLAIM),
            lambda world: world.pod("first", queue="q", cpu=9, created=1000, gated=True),
            lambda world: world.pod("first", queue="q", cpu=2, created=1000),
        ],
        ids=["deleted", "moved", "broken", "claim", "gated", "smaller"],
    )
    def test_queue_continues_when_its_head_stops_blocking(self, change: Step) -> None:
        scenario = second(world().pod("first", queue="q", cpu=9).run()).run()
        assert scenario.waiting("second") == ["second"]
        change(scenario)
        assert scenario.run().placed("second") == ["second"]

    @pytest.mark.parametrize(
        "change",
        [
            lambda world: world.gang("first", 3),
            lambda world: world.gang("first", 2, roles=(("ps", 1),)),
            lambda world: world.gang("first", 2, queue="other"),
            lambda world: world.gang("first", 2, queue="missing"),
            lambda world: world.no_gang("first").gone("first-0").gone("first-1"),
            lambda world: world.no_gang("first"),
            lambda world: world.gone("first-1"),
        ],
        ids=["minimum raised", "role raised", "moved", "moved away", "deleted", "group deleted", "member lost"],
    )
    def test_queue_continues_when_its_head_gang_stops_blocking(self, change: Step) -> None:
        scenario = second(world().job("first", 2, queue="q", cpu=3).run()).run()
        assert scenario.waiting("second") == ["second"]
        change(scenario)
        assert scenario.run().placed("second") == ["second"]
        assert scenario.restart().run().placed("second") == ["second"]

    def test_best_effort_pod_behind_a_head_waits_in_the_first_cycle_too(self) -> None:
        scenario = world().pod("first", queue="q", cpu=9, created=1).pod("free", queue="q", created=2).run()
        assert scenario.waiting("free") == ["free"]

    def test_best_effort_pod_before_other_pods_is_placed_first(self) -> None:
        scenario = world().pod("free", queue="q", created=1).pod("second", queue="q", cpu=1, created=2).run()
        assert scenario.order == ["free", "second"]


class TestAdmission:
    def head(self) -> Scenario:
        """An admitted gang without room at the head of its queue."""
        scenario = group(world(), "first", 2, cpu=3, admitted=True)
        return scenario.pods("first", 2, gang="first", cpu=3)

    def test_group_behind_a_gang_without_room_is_not_admitted_whatever_its_age(self) -> None:
        scenario = self.head()
        scenario.now += 1
        group(scenario, "second").run()
        assert scenario.admissions == []
        assert scenario.why("second").code == "BehindInQueue"
        scenario = self.head().run()
        scenario.now += 1
        assert group(scenario, "second").run().admissions == []

    def test_group_behind_a_gang_without_room_is_not_admitted_after_a_restart(self) -> None:
        scenario = self.head()
        scenario.now += 1
        group(scenario, "second").run().restart().run()
        assert scenario.admissions == []
        assert scenario.why("second").code == "BehindInQueue"

    def test_group_behind_a_gang_that_starts_in_the_same_cycle_is_admitted_in_it(self) -> None:
        scenario = group(world(), "first", 2, admitted=True).pods("first", 2, gang="first", cpu=1)
        scenario.now += 1
        plan = group(scenario, "second").cycle()
        assert [each.gang.name for each in plan.admissions] == ["second"]
        assert [bind.name for bind in plan.binds] == ["first-0", "first-1"]

    def test_group_behind_a_head_that_waits_for_no_nodes_is_admitted(self) -> None:
        scenario = group(world(), "first", 2, admitted=True).pods(
            "first", 2, gang="first", cpu=1, pod_class=NO_CLAIM
        )
        scenario.now += 1
        assert group(scenario, "second").run().admissions == ["second"]

    def test_postponed_admission_counts_the_placed_units_before_it(self) -> None:
        scenario = group(world(), "first", 1, cpu=4, admitted=True).pod("first-0", gang="first", cpu=4)
        scenario.now += 1
        assert group(scenario, "second", cpu=2).run().admissions == []

    def test_group_behind_a_head_that_would_borrow_waits_for_the_turn_of_the_head(self) -> None:
        """The pod of the other namespace is within its quota, so its turn comes before that of the head."""
        scenario = world().queue("z").within("ns").elastic_quota("ns", min={"cpu": 1}, max={"cpu": 9})
        scenario.elastic_quota("other", min={"cpu": 2}, max={"cpu": 9})
        group(scenario, "first", 1, cpu=2, admitted=True).pod("first-0", gang="first", cpu=2)
        scenario.now += 1
        scenario.within("other").pod("owner", queue="z", cpu=2).within("ns")
        plan = group(scenario, "second").cycle()
        assert [bind.name for bind in plan.binds] == ["owner"]
        assert not plan.admissions

    def test_policy_without_a_placing_action_admits_at_once(self) -> None:
        scenario = Scenario('actions: "enqueue"\ntiers: [{plugins: [{name: overcommit}]}]')
        scenario.node("n1", cpu=4).queue("q", fifo=True)
        group(scenario, "first", admitted=True).pod("first-0", gang="first", cpu=1)
        scenario.now += 1
        assert group(scenario, "second").run().admissions == ["second"]


def test_gang_within_its_share_does_not_overtake_a_borrowing_head() -> None:
    scenario = Scenario(WITHOUT_EVICTIONS).node("n1", cpu=4).node("n2", cpu=1, gpu=1)
    scenario.queue("q", fifo=True).queue("other").elastic_quota("ns", min={"cpu": 3}, max={"cpu": 40})
    scenario.elastic_quota("idle", min={"cpu": 9}, max={"cpu": 40})
    scenario.job("head", 2, cpu=2, queue="q", priority=10).job("behind", 1, cpu=1, queue="q")
    scenario.job("elsewhere", 1, cpu=1, gpu=1, queue="other").run()
    assert scenario.placed() == ["elsewhere-0", "head-0", "head-1"]
