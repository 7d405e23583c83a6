"""A gang moves as one, or not at all."""

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
    def test_on_four_gpus_all_five_wait_with_one_plain_reason(self) -> None:
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

    def test_with_four_gpus_more_all_five_start_together(self) -> None:
        world = tensorflow(Scenario().nodes(2, gpu=2)).run()
        world.node("n3", gpu=4).run()
        assert len(world.placed()) == 5
        assert world.content("tf")
        assert len({plan.cycle for plan in world.plans if plan.binds}) == 1

    def test_without_a_gang_two_workers_hold_their_gpus_for_nothing(self) -> None:
        world = Scenario().nodes(2, gpu=2).pod("ps-0", cpu=1).pods("worker", 4, cpu=1, gpu=2).run()
        assert world.placed() == ["ps-0", "worker-0", "worker-1"]
        assert world.why_pod("worker-2") == world.why_pod("worker-3")
        assert world.why_pod("worker-2").message == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


def test_a_member_that_fits_nowhere_keeps_no_minimum_of_others_back() -> None:
    """What Koordinator's mode NonStrict promises, whatever the mode."""
    world = (
        Scenario().nodes(2, gpu=1).gang("g", 2).pod("huge", gang="g", gpu=8).pods("fits", 2, gang="g", gpu=1).run()
    )
    assert world.placed() == ["fits-0", "fits-1"]


class TestDeadlock:
    def test_two_jobs_that_each_need_more_than_half_run_one_after_the_other(self) -> None:
        """Coscheduling KEP: pod by pod, each would start a part and wait for the other."""
        world = Scenario().nodes(4, gpu=1).job("a", 3, gpu=1).job("b", 3, gpu=1).run()
        assert world.placed() == ["a-0", "a-1", "a-2"]
        assert world.why("b").placeable == 1
        world.finishes("a-0", "a-1", "a-2").run()
        assert world.placed("b") == ["b-0", "b-1", "b-2"]

    def test_a_gang_that_fails_holds_nothing_and_blocks_nobody(self) -> None:
        world = Scenario().nodes(4, gpu=1)
        world.job("large", 5, gpu=1).job("small", 2, gpu=1).pod("single", gpu=1).run()
        assert world.placed() == ["single", "small-0", "small-1"]
        assert world.why("large").placeable == 1

    def test_what_the_first_gang_takes_the_second_cannot_have(self) -> None:
        world = Scenario().nodes(2, gpu=4)
        for name in "abc":
            world.job(name, 4, gpu=1)
        world.run()
        assert [len(world.placed(name)) for name in "abc"] == [4, 4, 0]


class TestJobReady:
    """KEP 34: with few enough members left, those that succeeded count; while more could come, they do not."""

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

    def test_the_last_member_of_three_may_run_alone(self) -> None:
        assert self.gang(pending=1, succeeded=2, room=1).placed("job") == ["job-0"]

    def test_too_few_members_wait_and_say_how_many_there_are(self) -> None:
        world = self.gang(pending=1, succeeded=1, room=4)
        assert world.placed("job") == []
        assert world.why("job").message == "only 2 of the 3 required pods of gang ns/job exist"


class TestMissingMembers:
    def test_nothing_starts_before_enough_members_exist(self) -> None:
        world = Scenario().nodes(3, gpu=8).gang("job", 3).pods("job", 2, gang="job", gpu=1).run()
        assert world.placed() == []
        verdict = world.why("job")
        assert (verdict.code, verdict.needed, verdict.members) == ("NotEnoughMembers", 3, 2)
        assert verdict.message == "only 2 of the 3 required pods of gang ns/job exist"
        assert verdict.change == "create 1 more pod of the gang, or lower its minimum to 2"
        world.pod("job-late", gang="job", gpu=1).run()
        assert len(world.placed()) == 3

    def test_the_minimum_may_be_lowered(self) -> None:
        world = Scenario().nodes(3, gpu=8).gang("job", 3).pods("job", 2, gang="job", gpu=1).run()
        world.gang("job", 2).run()
        assert len(world.placed()) == 2

    def test_raising_it_moves_nobody_who_runs(self) -> None:
        world = Scenario().nodes(3, gpu=8).job("job", 2, gpu=1).run()
        world.gang("job", 5).run()
        assert len(world.placed()) == 2

    def test_members_that_do_not_count_are_named(self) -> None:
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

    def test_a_gang_whose_pods_are_gone_asks_for_nothing(self) -> None:
        world = Scenario().nodes(1).gang("job", 3).pod("job-0", gang="job", cpu=1).run()
        assert world.why("job").code == "NotEnoughMembers"
        world.gone("job-0").run()
        assert world.content("job")

    def test_a_gang_that_is_no_longer_declared_leaves_the_rest_alone(self) -> None:
        world = Scenario().nodes(2, gpu=4).job("job", 4, minimum=2, gpu=2)
        world.run()
        assert len(world.placed()) == 4
        world.pod("job-late", gang="job", gpu=2).no_gang("job").run()
        assert len(world.placed()) == 4
        world.gang("job", 2).run()
        assert world.waiting() == ["job-late"]


class TestAnOldProblem:
    def test_a_held_gang_is_told_why_and_goes_when_it_is_solved(self) -> None:
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
    def test_a_sum_is_not_room(self) -> None:
        """Free GPUs 6, 2, 2, 2: three members with four each do not fit, whatever the sum says (P5)."""
        world = Scenario().node("n1", gpu=6).node("n2", gpu=2).node("n3", gpu=2).node("n4", gpu=2)
        world.job("job", 3, gpu=4).run()
        assert world.placed() == []
        assert world.why("job").placeable == 1

    @pytest.mark.parametrize("policy", [None, PACKING])
    def test_the_big_member_gets_the_big_node_whatever_its_name(self, policy: str | None) -> None:
        world = Scenario(policy).node("n1", gpu=2).node("n2", gpu=8)
        world.gang("job", 2).pod("a-small", gang="job", gpu=1).pod("b-big", gang="job", gpu=8).run()
        assert (world.where("a-small"), world.where("b-big")) == ("n1", "n2")
