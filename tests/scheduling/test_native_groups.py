"""Kubernetes' own groups: counting, holding and status of their members; a namesake inherits nothing."""

from __future__ import annotations

import pytest

from phalanx.dialects.families.native import NAMING
from phalanx.model.gang import MatchPolicy, Problem
from phalanx.model.pod import PlanMark, PodPhase
from phalanx.model.topology import TopologyRule

from .scenario import Scenario

PREEMPTING = """
actions: "allocate, preempt, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: binpack}]}]
"""
NATIVE = {"rules": NAMING.rules, "match_policy": MatchPolicy.UNTIL_SCHEDULED, "uid": "one"}


def native(world: Scenario, minimum: int, **fields: object) -> Scenario:
    return world.gang("job", minimum, **{**NATIVE, **fields})


class TestWaiting:
    def test_verdict_counts_members_in_the_terms_of_the_api(self) -> None:
        world = native(Scenario().node("n1", gpu=8), 8).pods("p", 3, gang="job", gpu=1).run()
        assert world.placed() == []
        assert world.why("job").message == "waiting for members of PodGroup ns/job: have 3 of 8 pods"

    def test_pod_waits_for_its_missing_group(self) -> None:
        missing = Problem.of("PodGroupNotFound", "waiting for PodGroup ns/job", "create it", waits=True)
        world = native(Scenario().node("n1", gpu=8), 1, problem=missing).pods("p", 3, gang="job", gpu=1).run()
        assert world.placed() == []
        assert world.why("job").message == "waiting for PodGroup ns/job"
        native(world, 1, problem=None).run()
        assert len(world.placed()) == 3

    def test_pod_that_mismatches_its_group_is_an_error_that_no_node_can_fix(self) -> None:
        mismatch = Problem(
            "PriorityMismatch", "pod ns/p-0 has priority 1, but its PodGroup has 2; give both the same"
        )
        world = native(Scenario().node("n1", gpu=8), 1, problem=mismatch).pods("p", 1, gang="job", gpu=1).run()
        assert world.why("job").fault
        world = native(world, 1, problem=Problem.of("UnknownPolicy", "the policy is not known", "use gang")).run()
        assert not world.why("job").fault

    def test_members_of_a_basic_group_are_placed_singly(self) -> None:
        world = native(Scenario().node("n1", gpu=4), 1)
        world.pods("p", 3, gang="job", gpu=1).pod("big", gang="job", gpu=64).run()
        assert world.placed() == ["p-0", "p-1", "p-2"]


class TestOnceScheduled:
    """A quorum is required once; a group that was evicted as a whole starts as a whole again."""

    def started(self) -> Scenario:
        world = native(Scenario().node("n1", gpu=8), 4).pods("p", 4, gang="job", gpu=1).run()
        assert len(world.placed()) == 4
        return world

    def test_replaced_member_joins_alone_although_siblings_have_finished(self) -> None:
        world = self.started().finishes("p-0", "p-1").finishes("p-2", phase=PodPhase.FAILED)
        world.pod("q", gang="job", gpu=1).run()
        assert "q" in world.placed()

    def test_replaced_member_joins_alone_after_a_restart_by_the_condition_only(self) -> None:
        world = native(Scenario().node("n1", gpu=8), 4, once_satisfied=True)
        world.pod("p-0", gang="job", gpu=1, node="n1").pod("q", gang="job", gpu=1).run()
        assert "q" in world.placed()

    def test_age_of_a_replaced_member_does_not_matter(self) -> None:
        """Times are whole seconds: a member created right after the plan looks like one left over by it."""
        mark = PlanMark("c1-1000@one", 3, 1000)
        world = native(Scenario().node("n1", gpu=8), 3, once_satisfied=True)
        world.pod("p-0", gang="job", gpu=1, node="n1", mark=mark, phase=PodPhase.SUCCEEDED)
        world.pod("p-1", gang="job", gpu=1, node="n1", mark=mark).pod("q", gang="job", gpu=1, created=1000).run()
        assert "q" in world.placed()

    def test_rest_of_a_plan_is_placed_although_another_member_has_finished(self) -> None:
        mark = PlanMark("c1-1000@one", 3, 1000)
        world = native(Scenario().node("n1", gpu=8), 3)
        world.pod("p-0", gang="job", gpu=1, node="n1", mark=mark, phase=PodPhase.SUCCEEDED)
        world.pod("p-1", gang="job", gpu=1, node="n1", mark=mark).pod("q", gang="job", gpu=1, created=1000).run()
        assert "q" in world.placed()

    def test_before_the_group_was_scheduled_its_quorum_applies_whatever_runs(self) -> None:
        world = native(Scenario().node("n1", gpu=8), 4)
        world.pod("p-0", gang="job", gpu=1, node="n1").pod("q", gang="job", gpu=1).run()
        assert "q" not in world.placed()

    def test_gang_without_any_member_left_needs_its_quorum_again(self) -> None:
        world = native(self.started(), 4, once_satisfied=True).gone("p-0", "p-1", "p-2", "p-3")
        world.pods("q", 3, gang="job", gpu=1).run()
        assert not [name for name in world.placed() if name.startswith("q")]
        world.pod("q-3", gang="job", gpu=1).run()
        assert len([name for name in world.placed() if name.startswith("q")]) == 4

    @pytest.mark.parametrize(("controller", "joins"), [("job-1", True), ("job-2", False), ("", False)])
    def test_last_replacement_beside_finished_members_can_start_alone(self, controller: str, joins: bool) -> None:
        """Of the same run only: their controller creates no other members. Members of another run start whole."""
        world = native(Scenario().node("n1", gpu=8), 4)
        world.pods("p", 4, gang="job", gpu=1, more={"controller": "job-1"}).run()
        world.finishes("p-0", "p-1", "p-2").finishes("p-3", phase=PodPhase.FAILED)
        world.pod("q", gang="job", gpu=1, more={"controller": controller}).run()
        assert ("q" in world.placed()) == joins

    def test_raised_minimum_disturbs_no_running_member(self) -> None:
        world = native(self.started(), 6).run()
        assert world.evicted == []
        assert len(world.placed()) == 4


class TestNamesakes:
    def test_group_that_is_created_again_needs_a_quorum_of_its_own(self) -> None:
        world = native(Scenario().node("n1", gpu=8), 2).pods("p", 2, gang="job", gpu=1).run()
        assert len(world.placed()) == 2
        native(world, 4, uid="two").pod("q", gang="job", gpu=1).run()
        assert "q" not in world.placed()
        assert world.why("job").message == "waiting for members of PodGroup ns/job: have 3 of 4 pods"

    def test_same_group_needs_no_second_quorum(self) -> None:
        world = native(Scenario().node("n1", gpu=8), 2).pods("p", 2, gang="job", gpu=1).run()
        native(world, 4).pod("q", gang="job", gpu=1).run()
        assert "q" in world.placed()

    def test_room_claimed_for_the_former_group_is_released(self) -> None:
        world = Scenario(PREEMPTING).node("n1", gpu=2).job("low", 2, minimum=1, gpu=1).settle()
        native(world, 2, priority=9).pods("p", 2, gang="job", gpu=1, priority=9).work()
        assert all(world.state.pods[name].nomination is not None for name in ("p-0", "p-1"))
        native(world, 3, uid="two", priority=9).work()
        assert all(world.state.pods[name].nomination is None for name in ("p-0", "p-1"))
        assert {(each.name, each.node) for plan in world.plans[-1:] for each in plan.nominations} == {
            ("p-0", ""),
            ("p-1", ""),
        }


class TestOtherSchedulers:
    """A policy can allow eviction of pods of other schedulers; their groups are units like ours."""

    def filled(self, **fields: object) -> Scenario:
        policy = PREEMPTING + "configurations: [{name: preempt, arguments: {phalanx.foreignVictims: true}}]"
        world = native(Scenario(policy).node("n1", gpu=2), 1, **fields)
        world.pods("p", 2, gang="job", gpu=1, node="n1", scheduler="another")
        return world.pod("vip", gpu=1, priority=9)

    def test_group_of_another_scheduler_is_evicted_whole_if_it_says_so(self) -> None:
        assert sorted(self.filled(unit=True).run().evicted) == ["p-0", "p-1"]

    def test_group_of_another_scheduler_is_evicted_singly_if_it_does_not_say_so(self) -> None:
        assert len(self.filled(unit=False).run().evicted) == 1


class TestPreemption:
    """Members above the minimum preempt singly, with the group's priority where it has one."""

    def full(self, **low: object) -> Scenario:
        world = Scenario(PREEMPTING).node("n1", cpu=4).pods("low", 4, cpu=1, **low).run()
        world.recreates = True
        return world

    def test_every_pod_of_a_basic_group_preempts(self) -> None:
        world = native(self.full(), 1).pods("p", 4, gang="job", cpu=1, priority=10).run()
        assert len(world.placed("p")) == 4
        assert len(world.evicted) == 4

    def test_members_above_the_minimum_are_evicted_together(self) -> None:
        world = native(self.full(), 1).pods("p", 4, gang="job", cpu=1, priority=10).run()
        assert [len(plan.evictions) for plan in world.plans if plan.evictions] == [1, 3]

    def test_members_above_the_minimum_preempt_up_to_the_available_room(self) -> None:
        world = (
            Scenario(PREEMPTING).node("n1", cpu=4).pods("low", 2, cpu=1).pods("high", 2, cpu=1, priority=10).run()
        )
        native(world, 1).pods("p", 4, gang="job", cpu=1, priority=10).run()
        assert len(world.placed("p")) == 2
        assert sorted(world.evicted) == ["low-0", "low-1"]

    def test_member_class_without_victims_does_not_block_another_class(self) -> None:
        world = native(self.full(), 1).pod("big", gang="job", cpu=64, priority=10, created=1)
        world.pods("p", 2, gang="job", cpu=1, priority=10).run()
        assert len(world.placed("p")) == 2

    def test_gang_of_another_dialect_does_not_preempt_for_surplus(self) -> None:
        world = self.full().job("high", 4, minimum=1, cpu=1, priority=10).run()
        assert len(world.evicted) == 1

    def test_group_without_preemption_evicts_no_pod_but_is_ordered_by_its_members(self) -> None:
        world = native(self.full(priority=5), 1, priority=0).pods("p", 1, gang="job", cpu=1, priority=10)
        world.pod("mid", cpu=1, priority=4, more={"preempts": False}).run()
        assert world.evicted == []
        world.gone("low-0").run()
        assert world.placed("p") == ["p-0"]
        assert world.placed("mid") == []

    def test_priority_of_the_group_counts_where_its_members_have_none(self) -> None:
        world = native(self.full(priority=5), 1, priority=10).pods("p", 1, gang="job", cpu=1, priority=1).run()
        assert world.placed("p") == ["p-0"]
        assert len(world.evicted) == 1

    def test_group_disrupted_as_a_whole_has_its_own_priority_whatever_its_members_have(self) -> None:
        world = native(Scenario(PREEMPTING).node("n1", cpu=2), 2, priority=10, unit=True)
        world.pods("p", 2, gang="job", cpu=1, priority=100).run()
        assert native(world, 2).pod("mid", cpu=1, priority=50).run().placed("mid") == ["mid"]
        assert sorted(world.evicted) == ["p-0", "p-1"]


class TestTopology:
    """Members of a group with a topology key are placed in one domain together, as far as there is room."""

    def racks(self, **nodes: int) -> Scenario:
        world = Scenario()
        for rack, count in nodes.items():
            for number in range(count):
                world.node(f"{rack}{number}", cpu=2, labels={"rack": rack})
        return world

    def basic(self, world: Scenario, name: str, count: int) -> Scenario:
        rule = TopologyRule.by_label("rack")
        world.gang(name, 1, **{**NATIVE, "uid": name, "topology": rule})
        return world.pods(name, count, gang=name, cpu=1)

    def homes(self, world: Scenario, name: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for node, count in world.spread(name).items():
            found[node[0]] = found.get(node[0], 0) + count
        return found

    def test_two_basic_groups_do_not_split_one_rack(self) -> None:
        world = self.racks(a=3, b=1)
        self.basic(world, "one", 2)
        self.basic(world, "two", 2)
        world.run()
        assert self.homes(world, "one") == {"b": 2}
        assert self.homes(world, "two") == {"a": 2}

    def test_rack_that_fits_the_most_members_is_preferred_to_a_fuller_one(self) -> None:
        world = self.racks(a=3, b=1)
        self.basic(world, "one", 3).run()
        assert self.homes(world, "one") == {"a": 3}
