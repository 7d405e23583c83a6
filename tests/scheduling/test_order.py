"""Order of the queue."""

from __future__ import annotations

import pytest

from phalanx.model.events import NamespaceWeighed

from .scenario import Scenario, limits


class TestPriority:
    def test_unit_of_higher_priority_is_first_whatever_its_age(self) -> None:
        world = Scenario().node("n1", gpu=2).job("old", 2, gpu=1)
        world.now += 10
        world.job("new", 2, gpu=1, priority=5).run()
        assert (world.placed("new"), world.placed("old")) == (["new-0", "new-1"], [])

    def test_priority_of_the_group_overrides_its_members(self) -> None:
        world = Scenario().node("n1", gpu=2).job("members", 2, gpu=1, priority=5).job("group", 2, gpu=1)
        world.gang("group", 2, priority=6).run()
        assert world.placed() == ["group-0", "group-1"]

    def test_one_member_of_high_priority_moves_its_gang_forward(self) -> None:
        world = Scenario().node("n1", gpu=2).job("plain", 2, gpu=1, priority=3)
        world.gang("mixed", 2).pod("mixed-0", gang="mixed", gpu=1).pod(
            "mixed-1", gang="mixed", gpu=1, priority=4
        ).run()
        assert world.placed() == ["mixed-0", "mixed-1"]

    def test_members_of_high_priority_fill_the_quorum_first(self) -> None:
        world = Scenario().node("n1", gpu=2).gang("job", 2).pods("low", 2, gang="job", gpu=1)
        world.pods("high", 2, gang="job", gpu=1, priority=1).run()
        assert world.placed() == ["high-0", "high-1"]

    def test_without_the_priority_plugin_age_decides(self) -> None:
        policy = "actions: allocate\ntiers: [{plugins: [{name: gang}, {name: predicates}, {name: nodeorder}]}]"
        world = Scenario(policy).node("n1", gpu=2).job("old", 2, gpu=1)
        world.now += 10
        world.job("new", 2, gpu=1, priority=5).run()
        assert world.placed() == ["old-0", "old-1"]


class TestAge:
    def test_older_gang_is_first(self) -> None:
        world = Scenario().node("n1", gpu=2)
        world.now += 10
        world.job("z", 2, gpu=1)
        world.now += 10
        world.job("a", 2, gpu=1).run()
        assert world.placed() == ["z-0", "z-1"]

    def test_gangs_of_equal_age_are_ordered_by_name_and_do_not_interleave(self) -> None:
        world = Scenario().node("n1", gpu=3).job("b", 2, gpu=1).job("a", 2, gpu=1).run()
        assert world.order == ["a-0", "a-1"]

    def test_pods_of_one_class_and_age_are_placed_with_the_first_of_them(self) -> None:
        world = Scenario().node("n1", gpu=9)
        world.pod("a", gpu=1).pod("b", gpu=2).pod("c", gpu=1).pod("d", gpu=2).run()
        assert world.order == ["a", "c", "b", "d"]

    @pytest.mark.parametrize(("nodes", "gpu"), [(1, 3), (1, 5), (2, 2)])
    def test_class_does_not_move_a_younger_pod_forward_where_room_is_uncertain(self, nodes: int, gpu: int) -> None:
        world = Scenario().nodes(nodes, gpu=gpu).pod("a", gpu=1, created=1).pod("b", gpu=2, created=1)
        world.pod("c", gpu=1, created=2).run()
        assert world.order[:2] == ["a", "b"]

    @pytest.mark.parametrize(("nodes", "gpu"), [(3, 2), (1, 9), (1, 6), (2, 4)])
    def test_class_moves_a_younger_pod_forward_where_all_pods_find_room(self, nodes: int, gpu: int) -> None:
        world = Scenario().nodes(nodes, gpu=gpu).pod("a", gpu=1, created=1).pod("b", gpu=2, created=1)
        world.pod("c", gpu=1, created=2).run()
        assert world.order == ["a", "c", "b"]

    def test_class_does_not_move_a_younger_pod_forward_where_a_quota_can_stop_some(self) -> None:
        world = Scenario().nodes(3, gpu=2).queue("default", capability=limits({"gpu": 8}))
        world.pod("a", gpu=1, created=1).pod("b", gpu=2, created=1).pod("c", gpu=1, created=2).run()
        assert world.order == ["a", "b", "c"]

    def test_pods_of_one_class_do_not_overtake_a_gang_of_the_same_age(self) -> None:
        world = Scenario().node("n1", gpu=3).pod("a", gpu=1, created=5).gang("b", 1, created=5)
        world.pod("b-0", gang="b", gpu=2).pod("c", gpu=1, created=5).run()
        assert (world.order, world.waiting()) == (["a", "b-0"], ["c"])

    def test_gangs_and_single_pods_share_one_order(self) -> None:
        world = Scenario().node("n1", gpu=2).pod("young", gpu=1, created=2000).job("job", 2, gpu=1).run()
        assert world.waiting() == ["young"]
        other = Scenario().node("n1", gpu=2).pod("elder", gpu=1, created=1).job("job", 2, gpu=1).run()
        assert other.placed() == ["elder"]

    def test_members_are_ordered_by_index_then_age_then_name(self) -> None:
        world = Scenario().node("n1", gpu=3).gang("job", 1)
        world.pod("c", gang="job", gpu=1, created=1).pod("b", gang="job", gpu=1, created=5)
        world.pod("a", gang="job", gpu=1, created=5).pod("z", gang="job", gpu=1, created=9).becomes(
            "z", index=0
        ).run()
        assert world.order == ["z", "c", "a"]


class TestSameInputSamePlan:
    def test_two_schedulers_with_the_same_history_make_the_same_plan(self) -> None:
        def plans() -> list[str]:
            world = Scenario().nodes(5, gpu=4)
            for name in "dacb":
                world.job(name, 6, minimum=3, gpu=1)
            world.pods("single", 3, gpu=2).run()
            return [f"{bind.name}@{bind.node}" for plan in world.plans for bind in plan.binds]

        assert plans() == plans()


class TestNamespacesInOneQueue:
    def test_namespace_with_less_usage_is_first_and_ties_use_the_age(self) -> None:
        cluster = Scenario().node("n", cpu=4)
        cluster.within("zebra").pods("old", 6, cpu=1, created=1).within("aardvark").pods("new", 2, cpu=1, created=2)
        cluster.run()
        assert cluster.order == ["old-0", "new-0", "old-1", "new-1"]

    def test_priority_is_compared_before_fairness_of_namespaces(self) -> None:
        cluster = Scenario().node("n", cpu=4)
        cluster.within("a").pods("high", 3, cpu=1, priority=5).within("b").pods("low", 3, cpu=1).run()
        assert cluster.order == ["high-0", "high-1", "high-2", "low-0"]

    def test_usage_of_namespaces_is_divided_by_weight(self) -> None:
        cluster = Scenario().node("n", cpu=8).observe("weight", NamespaceWeighed("heavy", 3))
        cluster.within("light").pods("l", 8, cpu=1).within("heavy").pods("h", 8, cpu=1).run()
        assert (len(cluster.placed("h")), len(cluster.placed("l"))) == (6, 2)
