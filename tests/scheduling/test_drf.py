"""`drf`: the smallest dominant share is first, for gangs and, with enableHierarchy, for queues."""

from __future__ import annotations

import random

import pytest

from phalanx.model.gang import Problem

from .desk import Desk, policy, queue
from .scenario import Scenario, key

DRF = policy("name: drf")
HDRF = policy("name: drf, enableHierarchy: true")


class TestGangs:
    def test_gang_with_the_smaller_dominant_share_is_first(self) -> None:
        """The example of the paper: 9 CPUs, 18 GB; tasks of A request 1 and 4, tasks of B 3 and 1: three of A, two
        of B.
        """
        world = Scenario(DRF).node("n", cpu=9, memory=18 * 10**9)
        world.job("a", 10, 1, cpu=1, memory=4 * 10**9).job("b", 10, 1, cpu=3, memory=10**9).run()
        assert (len(world.placed("a-")), len(world.placed("b-"))) == (3, 2)

    def test_share_of_a_gang_is_the_usage_of_its_members(self) -> None:
        world = Scenario(DRF).node("n", cpu=10, memory=100, pods=100).gang("job", 1)
        world.pods("cpu", 3, gang="job", cpu=1, node="n").pod("memory", gang="job", memory=20, node="n")
        world.pod("waiting", gang="job", cpu=7).pod("alone", cpu=5, node="n")
        desk = Desk(world)
        gang = world.state.gangs[key("job")]
        assert desk.plugin("drf").gang_order(desk.session, gang) == 3 / 10
        assert desk.plugin("drf").gang_order(desk.session, world.state.pods["alone"]) == 0

    def test_pod_slots_count_in_dominant_shares(self) -> None:
        world = Scenario(DRF).node("n", cpu=10, pods=4).gang("job", 1).pod("small", gang="job", cpu=1, node="n")
        desk = Desk(world)
        assert desk.plugin("drf").gang_order(desk.session, world.state.gangs[key("job")]) == 1 / 4

    def test_shares_of_gangs_leave_the_shared_amounts_of_queues_alone(self) -> None:
        """A node that has shrunk below its usage counts with its usage for queues, and not for gangs."""
        world = (
            Scenario(DRF).node("n", cpu=4).gang("job", 1).pod("old", gang="job", cpu=4, node="n").node("n", cpu=2)
        )
        desk = Desk(world)
        assert desk.plugin("drf").gang_order(desk.session, world.state.gangs[key("job")]) == 2
        assert desk.session.offered()["cpu"] == 4000

    def test_without_hierarchy_queues_are_not_ordered(self) -> None:
        world = Scenario(DRF).node("n", cpu=10).queue("a").queue("b").pods("a", 2, queue="a", cpu=1, node="n")
        assert Desk(world).order("drf", "a", "b") == ["a", "b"]
        assert Desk(world).order("drf", "b", "a") == ["b", "a"]


def spelt(path: str, weights: str) -> tuple[tuple[str, int], ...]:
    """Return a queue with weights as in Volcano's annotations."""
    return tuple(zip(path.split("/"), map(int, weights.split("/")), strict=True))


class TestHierarchy:
    def test_hierarchy_passes_volcanos_rescaling_test(self) -> None:
        world = Scenario(HDRF).node("n", cpu=10, memory=10 * 10**9)
        world.queue("root-sci", hierarchy=spelt("root/sci", "100/50"))
        world.queue("root-eng-dev", hierarchy=spelt("root/eng/dev", "100/50/50"))
        world.queue("root-eng-prod", hierarchy=spelt("root/eng/prod", "100/50/50"))
        world.pods("pg1", 10, queue="root-sci", cpu=1, memory=10**9)
        world.pods("pg21", 10, queue="root-eng-dev", cpu=1).pods("pg22", 10, queue="root-eng-prod", memory=10**9)
        world.run()
        assert [len(world.placed(f"{group}-")) for group in ("pg1", "pg21", "pg22")] == [5, 5, 5]

    def test_hierarchy_passes_volcanos_blocking_nodes_test(self) -> None:
        world = Scenario(HDRF).node("n", cpu=30, memory=30 * 10**9)
        world.queue("root-pg1", hierarchy=spelt("root/pg1", "100/25"))
        world.queue("root-pg2", hierarchy=spelt("root/pg2", "100/25"))
        world.queue("root-pg3-pg31", hierarchy=spelt("root/pg3/pg31", "100/25/50"))
        world.queue("root-pg3-pg32", hierarchy=spelt("root/pg3/pg32", "100/25/50"))
        world.queue("root-pg4", hierarchy=spelt("root/pg4", "100/25"))
        for group, name in (("pg1", "root-pg1"), ("pg2", "root-pg2"), ("pg31", "root-pg3-pg31")):
            world.pods(group, 30, queue=name, cpu=1)
        for group, name in (("pg32", "root-pg3-pg32"), ("pg4", "root-pg4")):
            world.pods(group, 30, queue=name, memory=10**9)
        world.run()
        groups = ("pg1", "pg2", "pg31", "pg32", "pg4")
        assert [len(world.placed(f"{group}-")) for group in groups] == [10, 10, 10, 15, 15]

    def test_queue_tree_gives_the_same_order_as_annotations(self) -> None:
        world = Scenario(HDRF).node("n", cpu=10, memory=10 * 10**9).queue("sci").queue("eng")
        world.queue("dev", parent="eng").queue("prod", parent="eng")
        world.pods("sci", 10, queue="sci", cpu=1, memory=10**9)
        world.pods("dev", 10, queue="dev", cpu=1).pods("prod", 10, queue="prod", memory=10**9).run()
        assert [len(world.placed(f"{name}-")) for name in ("sci", "dev", "prod")] == [5, 5, 5]

    @pytest.mark.slow
    def test_weights_count_on_every_level(self) -> None:
        world = Scenario(HDRF).node("n", cpu=160, pods=1000).queue("sci").queue("eng", weight=3)
        world.queue("dev", parent="eng", weight=2).queue("prod", parent="eng")
        for name in ("sci", "dev", "prod"):
            world.pods(name, 160, queue=name, cpu=1)
        world.run()
        assert [len(world.placed(f"{name}-")) for name in ("sci", "dev", "prod")] == [40, 80, 40]

    def test_queue_without_waiting_pods_is_last(self) -> None:
        world = (
            Scenario(HDRF).node("n", cpu=10).queue("idle").queue("busy").pods("b", 2, queue="busy", cpu=1, node="n")
        )
        world.pod("waiting", queue="busy", cpu=20)
        assert Desk(world).order("drf", "idle", "busy") == ["busy", "idle"]

    def test_queue_that_requests_an_exhausted_resource_is_after_queues_that_can_grow(self) -> None:
        world = Scenario(HDRF).node("n", cpu=10, gpu=1).queue("gpus").queue("cpus")
        world.pod("taken", gpu=1, node="n").pod("g", queue="gpus", gpu=1)
        world.pods("c", 2, queue="cpus", cpu=1, node="n").pod("c", queue="cpus", cpu=1)
        assert Desk(world).order("drf", "gpus", "cpus") == ["cpus", "gpus"]

    def test_a_broken_queue_does_not_count(self) -> None:
        world = Scenario(HDRF).node("n", cpu=4).queue("a").queue("b", problem=Problem("X", "x"))
        world.queue("child", parent="b").pods("a", 4, queue="a", cpu=1).pods("b", 4, queue="b", cpu=1)
        world.pods("c", 4, queue="child", cpu=1).run()
        assert len(world.placed("a-")) == 4

    def test_order_follows_allocations_within_a_cycle(self) -> None:
        world = Scenario(HDRF).node("n", cpu=10, memory=100).queue("eng").queue("sci")
        world.queue("dev", parent="eng").queue("prod", parent="eng")
        for name in ("dev", "prod", "sci"):
            world.pods(name, 4, queue=name, cpu=1)
        desk = Desk(world)
        assert desk.order("drf", "eng", "sci") == ["eng", "sci"]
        record = world.state.pods["dev-0"]
        transaction = world.state.transaction()
        transaction.place(record.pod_class, [record], [0])
        assert desk.order("drf", "eng", "sci") == ["sci", "eng"]
        assert desk.order("drf", "dev", "prod") == ["prod", "dev"]
        transaction.rollback()
        assert desk.order("drf", "eng", "sci") == ["eng", "sci"]
        assert desk.order("drf", "dev", "prod") == ["dev", "prod"]

    @pytest.mark.parametrize("seed", range(20))
    def test_incremental_shares_equal_shares_computed_from_scratch(self, seed: int) -> None:
        choice = random.Random(seed)
        world = Scenario(HDRF).node("n", cpu=12, gpu=12)
        names: list[str] = []
        for number in range(choice.randint(2, 9)):
            above = choice.choice(["", *names])
            names.append(f"q{number}")
            world.queue(names[-1], parent=above, weight=choice.randint(1, 3))
        leaves = [name for name in names if not Desk(world).account(queue(name)).children]
        for name in leaves:
            world.pods(f"c{name}", choice.randint(0, 6), queue=name, cpu=1)
            world.pods(f"g{name}", choice.randint(0, 6), queue=name, gpu=choice.randint(1, 2))

        def turns(desk: Desk) -> list[object]:
            plugin = desk.plugin("drf")
            return [plugin.queue_order(desk.session, desk.account(queue(name))) for name in names]

        desk = Desk(world)
        turns(desk)
        waiting = list(world.state.pods.values())
        choice.shuffle(waiting)
        for record in waiting[: choice.randint(0, 20)]:
            if (world.state.nodes.idle[record.pod_class.columns, 0] >= record.pod_class.amounts).all():
                transaction = world.state.transaction()
                transaction.place(record.pod_class, [record], [0])
                for placed, row in transaction.commit():
                    desk.session.decisions.bind(placed, row, None, None)
            turns(desk)
        assert turns(desk) == turns(Desk(world))

    def test_two_queues_can_have_the_same_annotated_path(self) -> None:
        world = Scenario(HDRF).node("n", cpu=60, pods=1000)
        for name in ("one", "two"):
            world.queue(name, hierarchy=spelt("root/eng", "1/1")).pods(name, 60, queue=name, cpu=1)
        world.queue("sci", hierarchy=spelt("root/sci", "1/1")).pods("sci", 60, queue="sci", cpu=1).run()
        assert [len(world.placed(f"{name}-")) for name in ("sci", "one", "two")] == [30, 15, 15]
