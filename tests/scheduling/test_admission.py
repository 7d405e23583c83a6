"""minResources: a hint in the coscheduling dialects, an admission in Volcano's."""

from __future__ import annotations

import pytest

from phalanx.model.gang import Problem

from .scenario import Scenario, amounts


def queued(world: Scenario, name: str, minimum: int = 2, created: int = 0, **size: object) -> Scenario:
    """A Volcano PodGroup in phase Pending: its controller creates pods once it is Inqueue."""
    fields = {"admission": True, "admitted": False, "created": created}
    return world.gang(name, minimum, min_resources=amounts(**size) or None, **fields)


class TestCoschedulingHint:
    def test_coscheduling_group_larger_than_the_idle_amounts_is_not_tried(self) -> None:
        world = Scenario().nodes(2, gpu=4).job("job", 2, gpu=1).gang("job", 2, min_resources=amounts(gpu=9)).run()
        assert world.placed() == []
        verdict = world.why("job")
        assert verdict.code == "NotEnoughResources"
        assert verdict.message == (
            "gang ns/job requires 1 nvidia.com/gpu more than the cluster has free (minResources)"
        )
        assert verdict.change == "free or add 1 nvidia.com/gpu, or lower minResources"
        world.node("n3", gpu=1).run()
        assert len(world.placed()) == 2

    def test_gang_of_a_generated_group_is_not_advised_to_lower_min_resources(self) -> None:
        wanted = amounts(gpu=9)
        world = Scenario().nodes(2, gpu=4).job("job", 2, gpu=1)
        verdict = world.gang("job", 2, min_resources=wanted, generated=True).run().why("job")
        assert verdict.message == "gang ns/job requires 1 nvidia.com/gpu more than the cluster has free"
        assert verdict.change == "free or add 1 nvidia.com/gpu"

    def test_amounts_held_by_the_members_of_the_group_count_as_idle(self) -> None:
        world = Scenario().nodes(2, gpu=4).gang("job", 4, min_resources=amounts(gpu=8))
        world.pods("there", 2, gang="job", gpu=2, node="n1").pods("job", 2, gang="job", gpu=2).run()
        assert len(world.placed()) == 4

    def test_min_resources_do_not_block_surplus(self) -> None:
        world = Scenario().node("n1", gpu=4).job("job", 3, minimum=2, gpu=1).run()
        world.gang("job", 2, min_resources=amounts(gpu=100)).pod("late", gang="job", gpu=1).run()
        assert world.waiting() == []

    def test_negative_idle_amounts_on_one_node_do_not_reduce_the_idle_sum(self) -> None:
        world = Scenario().node("n1", gpu=2).node("n2", gpu=2).pods("old", 2, gpu=1, node="n1").node("n1", gpu=0)
        world.job("job", 2, gpu=1).gang("job", 2, min_resources=amounts(gpu=2)).run()
        assert len(world.placed("job")) == 2


class TestVolcanoAdmission:
    def test_volcano_group_is_admitted_before_its_pods_exist(self) -> None:
        world = queued(Scenario().node("n1", gpu=8), "job", gpu=4).run()
        assert world.admissions == ["job"]
        world.pods("job", 2, gang="job", gpu=2).run()
        assert len(world.placed()) == 2

    @pytest.mark.feature("admission-lapse")
    def test_announced_amounts_are_released_if_no_pod_is_created(self) -> None:
        """A suspended job keeps its group; its controller creates no pods, and other groups wait for those
        amounts.
        """
        world = queued(Scenario().node("n1", gpu=8), "suspended", 1, gpu=8, created=1).run()
        queued(world, "next", 1, gpu=8, created=2).run()
        assert world.admissions == ["suspended"]
        assert world.scheduler.next_recheck is not None
        world.now += 290
        world.scheduler.activate_due(world.now)
        assert world.run().admissions == ["suspended"]
        world.now += 10
        world.scheduler.activate_due(world.now)
        assert world.run().admissions == ["suspended", "next"]
        assert world.scheduler.next_recheck is not None  # the admission of `next`
        # When its job is resumed the gang waits for its turn, and its announced amounts count again.
        world.pods("next", 1, gang="next", gpu=8).run()
        world.pods("suspended", 1, gang="suspended", gpu=8).run()
        assert world.placed() == ["next-0"]
        assert dict(world.state.gangs.inqueue.total()) == {"nvidia.com/gpu": 8}

    def test_pods_are_not_placed_before_their_group_is_admitted(self) -> None:
        world = queued(Scenario().node("n1", gpu=4), "job", gpu=8).pods("job", 2, gang="job", gpu=1).run()
        assert world.placed() == []
        verdict = world.why("job")
        assert (verdict.code, verdict.unschedulable) == ("AwaitingAdmission", False)
        assert "8 nvidia.com/gpu" in verdict.message

    @pytest.mark.parametrize(("size", "admitted"), [(12, True), (13, False)])
    def test_admissions_add_up_to_at_most_one_point_two_times_the_cluster(self, size: int, admitted: bool) -> None:
        world = queued(Scenario().node("n1", gpu=10), "job", gpu=size).run()
        assert (world.admissions == ["job"]) == admitted

    @pytest.mark.parametrize(("size", "admitted"), [(8, True), (9, False)])
    def test_used_amounts_are_not_admitted_again(self, size: int, admitted: bool) -> None:
        world = Scenario().node("n1", gpu=10).pod("busy", gpu=4, node="n1")
        assert (queued(world, "job", gpu=size).run().admissions == ["job"]) == admitted

    def test_amounts_of_admitted_groups_add_up(self) -> None:
        world = Scenario().node("n1", gpu=10)
        for created, name in enumerate("abc"):
            queued(world, name, gpu=5, created=created)
        world.run()
        assert world.admissions == ["a", "b"]
        assert world.why("c").code == "AwaitingAdmission"

    def test_admission_counts_before_the_phase_shows_it(self) -> None:
        """Two cycles run before the API has answered the first admission."""
        world = queued(Scenario().node("n1", gpu=10), "a", gpu=10).work()
        queued(world, "b", gpu=10).work()
        assert world.admissions == ["a"]
        world.run()
        assert world.admissions == ["a"]

    def test_admission_whose_write_failed_is_decided_again(self) -> None:
        world = queued(Scenario().node("n1", gpu=10), "a", gpu=10).work()
        world.state.gangs.admission_failed(next(iter(world.state.gangs)))
        world.run()
        assert world.admissions == ["a", "a"]

    def test_members_use_the_amounts_of_their_admitted_group(self) -> None:
        world = queued(Scenario().node("n1", gpu=10), "a", gpu=6).run()
        world.pods("a", 2, gang="a", gpu=3).run()
        assert queued(world, "b", gpu=6).run().admissions == ["a", "b"]

    def test_group_deleted_before_it_had_pods_releases_its_amounts(self) -> None:
        world = Scenario().node("n1", gpu=10)
        queued(queued(world, "a", gpu=12, created=1), "b", gpu=12, created=2).run()
        assert world.admissions == ["a"]
        world.no_gang("a").run()
        assert world.admissions == ["a", "b"]

    def test_group_that_cannot_be_admitted_does_not_block_later_groups(self) -> None:
        world = queued(Scenario().node("n1", gpu=10), "large", gpu=99, created=1)
        assert queued(world, "small", gpu=1, created=2).run().admissions == ["small"]

    def test_group_without_min_resources_is_always_admitted(self) -> None:
        assert queued(Scenario(), "job").run().admissions == ["job"]

    def test_group_of_higher_priority_is_admitted_first(self) -> None:
        world = queued(Scenario().node("n1", gpu=10), "a", gpu=12, created=1)
        queued(world, "b", gpu=12, created=2).gang("b", 2, priority=5).run()
        assert world.admissions == ["b"]

    def test_a_group_with_a_problem_is_not_admitted(self) -> None:
        world = queued(Scenario().node("n1", gpu=10), "a", gpu=1).gang("a", 2, problem=Problem("Bad", "no")).run()
        assert world.admissions == []

    def test_overcommit_factor_is_read_from_the_policy(self) -> None:
        policy = """
        actions: "enqueue, allocate"
        tiers: [{plugins: [{name: overcommit, arguments: {overcommit-factor: 2}}, {name: predicates}]}]
        """
        assert queued(Scenario(policy).node("n1", gpu=10), "job", gpu=20).run().admissions == ["job"]

    def test_factor_is_advised_only_where_the_cluster_is_large_enough(self) -> None:
        world = queued(Scenario().node("n1", gpu=10), "first", gpu=10)
        queued(queued(world, "second", gpu=10), "large", gpu=20).run()
        assert world.why("second").change == (
            "wait until groups with 8 nvidia.com/gpu finish, or raise overcommit-factor, or lower minResources"
        )
        assert world.why("large").change == "add nodes, or lower minResources"

    def test_pods_larger_than_any_node_need_larger_nodes_and_no_factor(self) -> None:
        world = queued(Scenario().nodes(4, cpu=16), "wide", minimum=2, cpu=100)
        queued(world, "none", minimum=1, gpu=1).run()
        assert world.why("wide").change == (
            "request at most 16 cpu per pod, or add nodes that offer at least 50 cpu each"
        )
        assert world.why("wide").message.endswith("; the largest node offers 16 cpu")
        assert world.why("none").change == "add nodes that offer at least 1 nvidia.com/gpu each"

    def test_amounts_of_a_refused_admission_have_one_unit(self) -> None:
        world = queued(Scenario().nodes(4, cpu=16), "large", minimum=8, cpu=120).run()
        message = world.why("large").message
        assert "request 120 cpu; 76.8 cpu can still be admitted" in message

    def test_without_the_overcommit_plugin_every_group_is_admitted(self) -> None:
        policy = 'actions: "enqueue, allocate"\ntiers: [{plugins: [{name: predicates}]}]'
        assert queued(Scenario(policy).node("n1", gpu=1), "job", gpu=20).run().admissions == ["job"]

    def test_without_the_enqueue_action_allocate_admits_groups(self) -> None:
        policy = (
            "actions: allocate\ntiers: [{plugins: [{name: overcommit}, {name: predicates}, {name: nodeorder}]}]"
        )
        world = queued(Scenario(policy).node("n1", gpu=2), "job", gpu=99).pods("job", 2, gang="job", gpu=1).run()
        assert world.admissions == ["job"]
        assert len(world.placed()) == 2

    def test_many_equal_groups_are_admitted_in_order_as_room_appears(self) -> None:
        world = Scenario().node("n1", gpu=10)
        for number in range(30):
            queued(world, f"job-{number:02}", gpu=4, created=number)
        world.run()
        assert world.admissions == ["job-00", "job-01", "job-02"]
        world.no_gang("job-01").run()
        assert world.admissions[3:] == ["job-03"]
        world.node("n2", gpu=20).run()
        assert world.admissions[4:] == [f"job-{number:02}" for number in range(4, 10)]


def test_verdict_says_that_a_queue_with_children_admits_no_group() -> None:
    world = Scenario().node("n1", cpu=8).queue("org").queue("leaf", parent="org")
    queued(world, "job").gang("job", 2, queue="org").run()
    verdict = world.why("job")
    assert verdict.code == "QueueNotLeaf"
    assert "queue org has child queues and takes no pods of its own" in verdict.message
    world.gang("job", 2, queue="leaf").run()
    assert world.admissions == ["job"]


def test_verdict_of_a_group_names_the_next_obstacle_once_its_queue_admits_it() -> None:
    world = queued(Scenario().node("n1", cpu=8).queue("other"), "job", cpu=99)
    world.gang("job", 2, queue="late").run()
    assert world.why("job").code == "QueueNotFound"
    world.queue("late").run()
    assert world.why("job").code == "AwaitingAdmission"
