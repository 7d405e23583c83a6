"""All-or-nothing start of gangs."""

from __future__ import annotations

import pytest

from phalanx.model.gang import MatchPolicy, Problem
from phalanx.model.pod import PodPhase

from .scenario import PACKING, Scenario


def tensorflow(world: Scenario) -> Scenario:
    """The example of ACK: one parameter server and four workers with two GPUs each."""
    world.gang("tf", 5)
    world.pod("tf-ps-0", gang="tf", role="ps", cpu=1)
    return world.pods("tf-worker", 4, gang="tf", role="worker", cpu=1, gpu=2)


class TestTheMainJob:
    def test_gang_of_five_on_four_gpus_waits_with_one_reason(self) -> None:
        world = tensorflow(Scenario().nodes(2, gpu=2)).run()
        assert world.placed() == []
        verdict = world.why("tf")
        assert verdict.code == "NotEnoughResources"
        assert verdict.unschedulable
        assert (verdict.needed, verdict.placeable, verdict.members) == (5, 3, 5)
        assert verdict.message == (
            "only 3 of the 5 required pods of gang ns/tf fit; 0/2 nodes are available for pod ns/tf-worker-0: "
            "2 Insufficient nvidia.com/gpu."
        )
        assert verdict.change == "add 4 nvidia.com/gpu (2 x 2)"

    def test_gang_of_five_starts_together_when_four_gpus_are_added(self) -> None:
        world = tensorflow(Scenario().nodes(2, gpu=2)).run()
        world.node("n3", gpu=4).run()
        assert len(world.placed()) == 5
        assert world.content("tf")
        assert len({plan.cycle for plan in world.plans if plan.binds}) == 1

    def test_without_a_gang_two_workers_hold_their_gpus_idle(self) -> None:
        world = Scenario().nodes(2, gpu=2).pod("ps-0", cpu=1).pods("worker", 4, cpu=1, gpu=2).run()
        assert world.placed() == ["ps-0", "worker-0", "worker-1"]
        assert world.why_pod("worker-2") == world.why_pod("worker-3")
        assert world.why_pod("worker-2").message == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


def test_unplaceable_member_does_not_block_the_minimum_of_its_gang() -> None:
    """Koordinator's mode NonStrict, for any mode."""
    world = (
        Scenario().nodes(2, gpu=1).gang("g", 2).pod("huge", gang="g", gpu=8).pods("fits", 2, gang="g", gpu=1).run()
    )
    assert world.placed() == ["fits-0", "fits-1"]


class TestDeadlock:
    def test_two_jobs_that_each_need_more_than_half_run_one_after_the_other(self) -> None:
        """Coscheduling KEP: pod by pod, each job would start in part and wait for the other."""
        world = Scenario().nodes(4, gpu=1).job("a", 3, gpu=1).job("b", 3, gpu=1).run()
        assert world.placed() == ["a-0", "a-1", "a-2"]
        assert world.why("b").placeable == 1
        world.finishes("a-0", "a-1", "a-2").run()
        assert world.placed("b") == ["b-0", "b-1", "b-2"]

    def test_gang_that_does_not_fit_holds_no_room_and_blocks_no_other_unit(self) -> None:
        world = Scenario().nodes(4, gpu=1)
        world.job("large", 5, gpu=1).job("small", 2, gpu=1).pod("single", gpu=1).run()
        assert world.placed() == ["single", "small-0", "small-1"]
        assert world.why("large").placeable == 1

    def test_room_of_the_first_gang_is_not_given_to_the_second(self) -> None:
        world = Scenario().nodes(2, gpu=4)
        for name in "abc":
            world.job(name, 4, gpu=1)
        world.run()
        assert [len(world.placed(name)) for name in "abc"] == [4, 4, 0]


class TestJobReady:
    """KEP 34: succeeded members count when too few members remain; while more can be created, they do not."""

    def gang(self, pending: int, succeeded: int, room: int) -> Scenario:
        world = Scenario().node("n1", gpu=room)
        world.gang("job", 3, match_policy=MatchPolicy.WAITING_RUNNING_SUCCEEDED)
        for number in range(succeeded):
            world.pod(f"done-{number}", gang="job", node="n1", phase=PodPhase.SUCCEEDED, gpu=1)
        return world.pods("job", pending, gang="job", gpu=1).run()

    def test_three_fresh_members_start_together(self) -> None:
        assert len(self.gang(pending=3, succeeded=0, room=3).placed("job")) == 3

    def test_three_fresh_members_with_room_for_two_wait(self) -> None:
        assert self.gang(pending=3, succeeded=0, room=2).placed("job") == []

    def test_last_member_of_three_can_run_alone(self) -> None:
        assert self.gang(pending=1, succeeded=2, room=1).placed("job") == ["job-0"]

    def test_gang_with_too_few_members_waits_and_its_verdict_has_the_count(self) -> None:
        world = self.gang(pending=1, succeeded=1, room=4)
        assert world.placed("job") == []
        assert world.why("job").message == "only 2 of the 3 required pods of gang ns/job exist"


class TestMissingMembers:
    def test_no_member_starts_before_enough_members_exist(self) -> None:
        world = Scenario().nodes(3, gpu=8).gang("job", 3).pods("job", 2, gang="job", gpu=1).run()
        assert world.placed() == []
        verdict = world.why("job")
        assert (verdict.code, verdict.needed, verdict.members) == ("NotEnoughMembers", 3, 2)
        assert verdict.message == "only 2 of the 3 required pods of gang ns/job exist"
        assert verdict.change == "create 1 more pod of the gang, or lower its minimum to 2"
        world.pod("job-late", gang="job", gpu=1).run()
        assert len(world.placed()) == 3

    def test_lowered_minimum_lets_the_gang_start(self) -> None:
        world = Scenario().nodes(3, gpu=8).gang("job", 3).pods("job", 2, gang="job", gpu=1).run()
        world.gang("job", 2).run()
        assert len(world.placed()) == 2

    def test_raised_minimum_evicts_no_running_member(self) -> None:
        world = Scenario().nodes(3, gpu=8).job("job", 2, gpu=1).run()
        world.gang("job", 5).run()
        assert len(world.placed()) == 2

    def test_verdict_names_members_that_do_not_count(self) -> None:
        world = Scenario().nodes(3, gpu=8).gang("job", 6).pod("job-0", gang="job", gpu=1)
        world.pod("gated", gang="job", gpu=1, gated=True)
        world.pod("other", gang="job", gpu=1, scheduler="default-scheduler")
        world.pod("leaving", gang="job", gpu=1, node="n1", terminating=True)
        world.pod("done", gang="job", gpu=1, node="n1", phase=PodPhase.SUCCEEDED)
        world.pod("failed", gang="job", gpu=1, node="n1", phase=PodPhase.FAILED).run()
        assert world.why("job").message == (
            "only 1 of the 6 required pods of gang ns/job exist (not counted: 1 gated, "
            "1 with another schedulerName, 1 terminating, 1 succeeded, 1 failed)"
        )
        assert world.why("job").change == (
            "remove the scheduling gates of 1 pod and recreate 1 pod with the spec.schedulerName of the gang "
            "and create 3 more pods of the gang, or lower its minimum to 1"
        )

    def test_gang_without_pods_requests_nothing(self) -> None:
        world = Scenario().nodes(1).gang("job", 3).pod("job-0", gang="job", cpu=1).run()
        assert world.why("job").code == "NotEnoughMembers"
        world.gone("job-0").run()
        assert world.content("job")

    def test_gang_without_a_declaration_does_not_affect_other_units(self) -> None:
        world = Scenario().nodes(2, gpu=4).job("job", 4, minimum=2, gpu=2)
        world.run()
        assert len(world.placed()) == 4
        world.pod("job-late", gang="job", gpu=2).no_gang("job").run()
        assert len(world.placed()) == 4
        world.gang("job", 2).run()
        assert world.waiting() == ["job-late"]


class TestAnOldProblem:
    def test_held_gang_has_a_reason_and_starts_when_the_problem_is_solved(self) -> None:
        world = Scenario().nodes(2, gpu=8).job("job", 2, gpu=1)
        world.gang("job", 2, problem=Problem("InvalidPodGroup", "minMember is 'many'")).run()
        assert world.placed() == []
        assert (world.why("job").code, world.why("job").message) == (
            "InvalidPodGroup",
            "gang ns/job cannot start: minMember is 'many'",
        )
        world.gang("job", 2, problem=None).run()
        assert len(world.placed()) == 2


class TestFragmentation:
    def test_gang_waits_where_only_the_sum_of_free_gpus_is_enough(self) -> None:
        """Free GPUs 6, 2, 2, 2: three members with four each do not fit, although the sum is 12 (P5)."""
        world = Scenario().node("n1", gpu=6).node("n2", gpu=2).node("n3", gpu=2).node("n4", gpu=2)
        world.job("job", 3, gpu=4).run()
        assert world.placed() == []
        assert world.why("job").placeable == 1

    @pytest.mark.parametrize("policy", [None, PACKING])
    def test_large_member_gets_the_large_node_whatever_its_name(self, policy: str | None) -> None:
        world = Scenario(policy).node("n1", gpu=2).node("n2", gpu=8)
        world.gang("job", 2).pod("a-small", gang="job", gpu=1).pod("b-big", gang="job", gpu=8).run()
        assert (world.where("a-small"), world.where("b-big")) == ("n1", "n2")
