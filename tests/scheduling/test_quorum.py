"""Quorum rules: per-role minima, the four match policies, surplus, and partly carried out plans."""

from __future__ import annotations

import pytest

from phalanx.model.gang import GangRules, MatchPolicy
from phalanx.model.pod import PlanMark, PodPhase
from phalanx.scheduling.gangs.quorum import unfinished_plan

from .scenario import Scenario

ONLY_WAITING = MatchPolicy.ONLY_WAITING
WAITING_AND_RUNNING = MatchPolicy.WAITING_AND_RUNNING
WITH_SUCCEEDED = MatchPolicy.WAITING_RUNNING_SUCCEEDED
ONCE = MatchPolicy.ONCE_SATISFIED


class TestRoles:
    def job(self, world: Scenario, ps: int, workers: int) -> Scenario:
        world.gang("job", 3, roles=(("ps", 1), ("worker", 2)))
        world.pods("job-ps", ps, gang="job", role="ps", gpu=1)
        return world.pods("job-worker", workers, gang="job", role="worker", gpu=1)

    def test_every_role_gets_its_minimum(self) -> None:
        world = self.job(Scenario().node("n1", gpu=3), ps=3, workers=3).run()
        assert world.placed() == ["job-ps-0", "job-worker-0", "job-worker-1"]
        assert world.why_pod("job-ps-1").code == "NotEnoughResources"

    def test_verdict_names_a_role_that_lacks_members(self) -> None:
        world = self.job(Scenario().node("n1", gpu=8), ps=0, workers=5).run()
        assert world.placed() == []
        assert world.why("job").message == "0 of the 1 required pod of role ps of gang ns/job exists"
        assert world.why("job").change == "create 1 more pod of role ps"

    def test_members_of_one_role_do_not_count_for_another(self) -> None:
        world = self.job(Scenario().node("n1", gpu=2), ps=2, workers=2).run()
        assert world.placed() == []
        assert world.why("job").placeable == 2

    def test_gang_minimum_can_exceed_the_sum_of_role_minima(self) -> None:
        world = Scenario().node("n1", gpu=4).gang("job", 4, roles=(("ps", 1),))
        world.pods("job-ps", 2, gang="job", role="ps", gpu=1).pods(
            "job-w", 2, gang="job", role="worker", gpu=1
        ).run()
        assert len(world.placed()) == 4

    def test_running_role_needs_no_more_members(self) -> None:
        world = self.job(Scenario().node("n1", gpu=3), ps=1, workers=2).run()
        world.gone("job-worker-1").pod("job-worker-2", gang="job", role="worker", gpu=1).run()
        assert "job-worker-2" in world.placed()


class TestMatchPolicies:
    """docs/rules/coscheduling.md, section 1.5, row by row; a gang of three that has lost members."""

    def world(self, policy: MatchPolicy, **fields: object) -> Scenario:
        return Scenario().nodes(2, gpu=8).gang("job", 3, match_policy=policy, **fields)

    @pytest.mark.parametrize("policy", list(MatchPolicy))
    def test_three_waiting_members_of_three_start_under_every_policy(self, policy: MatchPolicy) -> None:
        assert len(self.world(policy).pods("job", 3, gang="job", gpu=1).run().placed()) == 3

    @pytest.mark.parametrize("policy", list(MatchPolicy))
    def test_two_waiting_members_of_three_do_not_start_under_any_policy(self, policy: MatchPolicy) -> None:
        assert self.world(policy).pods("job", 2, gang="job", gpu=1).run().placed() == []

    @pytest.mark.parametrize(
        ("policy", "joins"),
        [(ONLY_WAITING, False), (WAITING_AND_RUNNING, True), (WITH_SUCCEEDED, True), (ONCE, True)],
    )
    def test_replaced_member_starts_unless_the_policy_is_only_waiting(
        self, policy: MatchPolicy, joins: bool
    ) -> None:
        """Under only-waiting, running members never count: the replacement stays pending. The policy is for jobs
        that restart whole.
        """
        world = self.world(policy).pods("job", 3, gang="job", gpu=1).run()
        world.now += 5
        world.gone("job-1").pod("job-1b", gang="job", gpu=1).run()
        assert bool(world.where("job-1b")) == joins
        if not joins:
            assert world.why("job").message == (
                "only 1 of the 3 required pods of gang ns/job exist (not counted: 2 on nodes; match policy "
                "only-waiting)"
            )

    @pytest.mark.parametrize(
        ("policy", "joins"),
        [(ONLY_WAITING, False), (WAITING_AND_RUNNING, False), (WITH_SUCCEEDED, True), (ONCE, True)],
    )
    def test_member_that_joins_succeeded_members_starts_by_match_policy(
        self, policy: MatchPolicy, joins: bool
    ) -> None:
        """All have one controller, which creates no replacements for succeeded members."""
        of = {"controller": "job-1"}
        world = self.world(policy).pods("job", 3, gang="job", gpu=1, more=of).run()
        world.now += 5
        world.finishes("job-0", "job-1", "job-2").pod("job-late", gang="job", gpu=1, more=of).run()
        assert bool(world.where("job-late")) == joins

    @pytest.mark.parametrize(
        ("policy", "succeeded", "hint"),
        [(WAITING_AND_RUNNING, 1, True), (WAITING_AND_RUNNING, 0, False), (ONLY_WAITING, 1, False)],
    )
    def test_verdict_names_the_match_policy_if_only_succeeded_members_are_missing(
        self, policy: MatchPolicy, succeeded: int, hint: bool
    ) -> None:
        """A replacement joins one running and one succeeded member."""
        of = {"controller": "job-1"}
        rules = GangRules("scheduling.x-k8s.io")
        world = self.world(policy, rules=rules).pods("job", 3, gang="job", gpu=1, more=of).run()
        world.now += 5
        if succeeded:
            world.finishes("job-0")
        world.gone("job-1", *(() if succeeded else ("job-0",)))
        world.pod("job-late", gang="job", gpu=1, more=of).run()
        change = world.why("job").change
        assert ("phalanx.dialects.matchPolicies: {scheduling.x-k8s.io: waiting-running-succeed}" in change) == hint
        assert change.startswith("create ")

    @pytest.mark.parametrize("policy", list(MatchPolicy))
    def test_finished_members_of_an_earlier_run_do_not_count_for_a_new_run(self, policy: MatchPolicy) -> None:
        world = Scenario().node("n1", gpu=2).gang("job", 3, match_policy=policy)
        for number in range(3):
            done, of = f"done-{number}", {"controller": "job-1"}
            world.pod(done, gang="job", node="n1", phase=PodPhase.SUCCEEDED, mark=PlanMark("p", 3, 900), more=of)
        world.pods("again", 3, gang="job", gpu=1, more={"controller": "job-2"}).run()
        assert world.placed("again") == []

    @pytest.mark.parametrize("policy", list(MatchPolicy))
    def test_failed_members_never_count(self, policy: MatchPolicy) -> None:
        world = self.world(policy)
        for number in range(2):
            world.pod(f"failed-{number}", gang="job", node="n1", phase=PodPhase.FAILED, gpu=1)
        assert world.pod("job-0", gang="job", gpu=1).run().placed("job") == []

    @pytest.mark.parametrize("policy", list(MatchPolicy))
    def test_terminating_members_never_count(self, policy: MatchPolicy) -> None:
        world = self.world(policy).pods("leaving", 2, gang="job", node="n1", terminating=True, gpu=1)
        assert world.pod("job-0", gang="job", gpu=1).run().placed("job") == []

    def test_once_satisfied_is_not_inferred_from_one_bound_member(self) -> None:
        world = self.world(ONCE).pod("stray", gang="job", node="n1", gpu=1)
        assert world.pod("job-0", gang="job", gpu=1).run().placed("job") == []

    def test_once_satisfied_is_inferred_from_a_quorum_on_nodes(self) -> None:
        world = self.world(ONCE).pods("there", 3, gang="job", node="n1", gpu=1)
        assert world.pod("job-0", gang="job", gpu=1).run().placed("job") == ["job-0"]

    def test_annotation_of_the_group_does_not_prove_that_it_was_satisfied_once(self) -> None:
        """Any writer of the object could set it, and a copy of the object would claim it for a run that is over."""
        world = self.world(ONCE, once_satisfied=True).pod("job-0", gang="job", gpu=1)
        assert world.run().placed() == []

    def test_once_satisfied_remains_after_all_but_one_member_are_gone(self) -> None:
        """The plan mark on the survivor proves that the quorum was reached."""
        world = self.world(ONCE).pods("job", 3, gang="job", gpu=1).run()
        world.now += 5
        world.gone("job-0", "job-1").restart().pod("job-new", gang="job", gpu=1).run()
        assert world.where("job-new")

    def test_once_satisfied_remains_after_all_marked_members_were_replaced(self) -> None:
        world = self.world(ONCE).pods("job", 3, gang="job", gpu=1).run()
        for number in range(3):
            world.now += 5
            world.gone(f"job-{number}").pod(f"new-{number}", gang="job", gpu=1).run()
        world.gone("new-0", "new-1").restart().pod("last", gang="job", gpu=1).run()
        assert world.where("last")

    @pytest.mark.parametrize("restarts", [False, True])
    @pytest.mark.parametrize("leaves", ["gone", "terminating"])
    @pytest.mark.parametrize("policy", [ONCE, MatchPolicy.UNTIL_SCHEDULED])
    def test_gang_that_runs_again_starts_whole(self, policy: MatchPolicy, leaves: str, restarts: bool) -> None:
        """Also while evicted members terminate: they prove nothing any more."""
        world = Scenario().node("n1", gpu=5).gang("job", 3, match_policy=policy, once_satisfied=True)
        world.pods("job", 3, gang="job", gpu=1).run()
        for name in ("job-0", "job-1", "job-2"):
            world.gone(name) if leaves == "gone" else world.becomes(name, terminating=True)
        if leaves == "gone":
            world.node("n1", gpu=2)
        if restarts:
            world.restart()
        world.pods("again", 3, gang="job", gpu=1).run()
        assert world.placed("again") == []

    def test_run_continues_while_one_member_lives_although_the_remaining_were_evicted(self) -> None:
        world = self.world(ONCE).pods("job", 3, gang="job", gpu=1).run()
        world.becomes("job-0", terminating=True).becomes("job-1", terminating=True)
        world.pod("again", gang="job", gpu=1).run()
        assert world.where("again")


class TestSurplus:
    def test_surplus_members_are_placed_as_room_allows(self) -> None:
        world = Scenario().node("n1", gpu=4).job("job", 6, minimum=2, gpu=1).run()
        assert world.placed() == ["job-0", "job-1", "job-2", "job-3"]
        assert world.content("job")
        assert world.why_pod("job-4").message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
        world.node("n2", gpu=2).run()
        assert len(world.placed()) == 6

    def test_every_quorum_is_placed_before_any_surplus(self) -> None:
        world = Scenario().node("n1", gpu=4)
        world.job("a", 4, minimum=2, gpu=1).job("b", 4, minimum=2, gpu=1).run()
        assert [len(world.placed("a")), len(world.placed("b"))] == [2, 2]

    def test_surplus_is_shared_in_fair_turns(self) -> None:
        world = Scenario().node("n1", gpu=9)
        for name in "abc":
            world.job(name, 6, minimum=1, gpu=1)
        world.run()
        assert [len(world.placed(name)) for name in "abc"] == [3, 3, 3]

    def test_gang_with_less_surplus_is_first_in_later_cycles_too(self) -> None:
        world = Scenario().node("n1", gpu=4).job("a", 9, minimum=1, gpu=1).run()
        assert len(world.placed("a")) == 4
        world.node("n2", gpu=1).job("b", 4, minimum=1, gpu=1).run()
        world.node("n3", gpu=2).run()
        assert [len(world.placed("a")), len(world.placed("b"))] == [4, 3]

    def test_surplus_of_high_priority_is_placed_before_a_quorum_of_lower_priority(self) -> None:
        world = Scenario().node("n1", gpu=4)
        world.job("low", 2, gpu=1).job("high", 4, minimum=2, gpu=1, priority=9).run()
        assert [len(world.placed("high")), len(world.placed("low"))] == [4, 0]

    def test_member_class_without_room_does_not_block_other_surplus_of_the_gang(self) -> None:
        world = Scenario().node("n1", gpu=2).gang("job", 1)
        world.pod("job-0", gang="job", gpu=1).pod("job-1", gang="job", gpu=8).pod("job-2", gang="job", gpu=1).run()
        assert world.placed() == ["job-0", "job-2"]
        assert world.why_pod("job-1").code == "NotEnoughResources"

    def test_unreadable_member_blocks_neither_quorum_nor_surplus(self) -> None:
        world = Scenario().node("n1", gpu=8).gang("job", 2)
        world.pod("job-0", gang="job", gpu=1, problem="cpu is 'lots'").pods("job-x", 3, gang="job", gpu=1).run()
        assert world.waiting() == ["job-0"]
        assert world.why_pod("job-0").message == "pod ns/job-0 cannot be scheduled: cpu is 'lots'"

    def test_quorum_that_needs_the_unreadable_member_waits_for_its_correction(self) -> None:
        world = Scenario().node("n1", gpu=8).gang("job", 2)
        world.pod("job-0", gang="job", gpu=1, problem="cpu is 'lots'").pod("job-1", gang="job", gpu=1).run()
        assert world.placed() == []
        assert world.why("job").code == "UnreadablePod"
        world.becomes("job-0", problem="").run()
        assert len(world.placed()) == 2


class TestRepair:
    """Some bindings of a plan succeed and some fail: the remainder is placed before other units."""

    def half_bound(self, policy: MatchPolicy = WAITING_AND_RUNNING) -> Scenario:
        world = Scenario().node("n1", gpu=4).job("job", 4, gpu=1)
        world.gang("job", 4, match_policy=policy).work()
        world.confirm("job-0", "job-1")
        world.state.pods.binding_failed("job-2")
        world.state.pods.binding_failed("job-3")
        return world

    @pytest.mark.parametrize("policy", list(MatchPolicy))
    def test_members_whose_binding_failed_are_placed_again(self, policy: MatchPolicy) -> None:
        world = self.half_bound(policy).run()
        assert len(world.placed()) == 4

    @pytest.mark.parametrize("policy", list(MatchPolicy))
    def test_members_whose_binding_failed_are_placed_again_after_a_restart(self, policy: MatchPolicy) -> None:
        world = self.half_bound(policy).restart().run()
        assert len(world.placed()) == 4

    def test_repair_of_a_gang_is_placed_before_all_other_units(self) -> None:
        world = self.half_bound().job("rival", 2, gpu=1, priority=100).work()
        assert len(world.placed("job")) == 4
        assert world.placed("rival") == []
        # Only then is it the rival's turn, and a whole gang is evicted for it.
        assert world.run().evicted == ["job-0", "job-1", "job-2", "job-3"]

    def test_repaired_members_have_the_mark_of_their_plan(self) -> None:
        world = self.half_bound().run()
        marks = {record.mark for record in world.state.pods.values()}
        assert len(marks) == 1
        (gang,) = world.state.gangs.values()
        assert gang.marks == dict.fromkeys(marks, 4)

    def test_repair_without_room_waits_and_its_verdict_says_so(self) -> None:
        world = self.half_bound()
        world.pod("intruder", gpu=1, node="n1", scheduler="default-scheduler").run()
        assert world.waiting() == ["job-2", "job-3"]
        verdict = world.why("job")
        assert (verdict.needed, verdict.placeable) == (2, 1)
        world.gone("intruder").run()
        assert world.waiting() == []

    def test_plan_is_unfinished_while_a_failed_binding_is_retried(self) -> None:
        world = self.half_bound().work()
        (gang,) = world.state.gangs.values()
        assert gang.spec is not None
        assert gang.pending == {}
        assert unfinished_plan(gang, gang.spec) is not None
        world.confirm()
        assert unfinished_plan(gang, gang.spec) is None

    def test_gang_of_one_has_no_plan_mark(self) -> None:
        world = Scenario().nodes(1, gpu=1).job("job", 1, gpu=1).run()
        assert world.state.pods["job-0"].mark is None

    def test_plan_mark_of_unknown_origin_has_no_effect(self) -> None:
        world = Scenario().node("n1", gpu=4).gang("job", 3)
        world.pod("old", gang="job", gpu=1, node="n1", mark=PlanMark("foreign", 99, 10**12))
        world.pods("job", 2, gang="job", gpu=1).run()
        assert len(world.placed()) == 3

    def test_late_confirmation_of_a_binding_ends_the_repair(self) -> None:
        """The binding had succeeded after all: the pod is where the API reports it."""
        world = self.half_bound()
        mark = next(iter(world.state.gangs.values())).marks
        (plan,) = mark
        world.becomes("job-2", node="n1", mark=plan, phase=PodPhase.RUNNING).run()
        assert len(world.placed()) == 4


class TestKubeBatchJobReady:
    """docs/gangs.md: succeeded members count also where waiting ones could make up the minimum."""

    def test_two_of_three_waiting_members_start_beside_a_succeeded_one(self) -> None:
        world = Scenario().node("n1", gpu=2).gang("job", 3, match_policy=WITH_SUCCEEDED)
        world.pod("done", gang="job", node="n1", phase=PodPhase.SUCCEEDED).pods("w", 3, gang="job", gpu=1).run()
        assert len(world.placed("w")) == 2

    def test_without_job_ready_policy_all_three_waiting_members_must_fit(self) -> None:
        world = Scenario().node("n1", gpu=2).gang("job", 3, match_policy=WAITING_AND_RUNNING)
        world.pod("done", gang="job", node="n1", phase=PodPhase.SUCCEEDED).pods("w", 3, gang="job", gpu=1).run()
        assert world.placed("w") == []
        world.node("n2", gpu=1).run()
        assert len(world.placed("w")) == 3
