"""Bundles (gang groups): gangs that must be satisfied together are one unit of the queue."""

from __future__ import annotations

import pytest

from .scenario import Scenario


def bundle(world: Scenario, *names: str, gpu: int = 1, members: int = 2) -> Scenario:
    for name in names:
        world.job(name, members, gpu=gpu)
        world.gang(name, members, bundle=list(names), created=world.now)
    return world


class TestTogether:
    def test_all_gangs_of_a_bundle_start_in_one_cycle(self) -> None:
        world = bundle(Scenario().nodes(2, gpu=2), "ps", "worker").run()
        assert len(world.placed()) == 4
        assert [len(plan.binds) for plan in world.plans if plan.binds] == [4]
        assert world.content("ps")
        assert world.content("worker")

    def test_if_one_has_no_room_none_starts(self) -> None:
        world = Scenario().node("n1", gpu=3)
        bundle(world, "ps", "worker").run()
        assert world.placed() == []
        assert world.why("worker").code == "NotEnoughResources"
        assert world.why("ps").code == "WaitingForBundle"
        assert (
            world.why("ps").message
            == f"gang ns/ps waits for gang ns/worker of its bundle: {world.why('worker').message}"
        )

    def test_two_bundles_that_interleave_in_the_queue_do_not_lock_each_other(self) -> None:
        """P12: {A, B} and {C, D}, created A C B D, with room for one bundle."""
        world = Scenario().node("n1", gpu=4)
        for name, mates in (("a", "ab"), ("c", "cd"), ("b", "ab"), ("d", "cd")):
            world.now += 1
            world.job(name, 2, gpu=1).gang(name, 2, bundle=list(mates), created=world.now)
        world.run()
        assert world.placed() == ["a-0", "a-1", "b-0", "b-1"]
        assert world.why("d").code == "WaitingForBundle"
        world.finishes("a-0", "a-1", "b-0", "b-1").run()
        assert world.placed("c") + world.placed("d") == ["c-0", "c-1", "d-0", "d-1"]

    def test_a_bundle_waits_for_members_of_any_of_its_gangs(self) -> None:
        world = Scenario().nodes(2, gpu=8)
        bundle(world, "ps", "worker").gone("worker-1").run()
        assert world.placed() == []
        assert world.why("worker").message == "gang ns/worker has 1 of the 2 members that it needs"
        assert world.why("ps").code == "WaitingForBundle"
        world.pod("worker-1", gang="worker", gpu=1).run()
        assert len(world.placed()) == 4

    def test_the_first_gang_leaves_room_for_the_second(self) -> None:
        """The mate can only use the node that the first one would have liked."""
        world = Scenario().node("small", gpu=2).node("large", gpu=4, labels={"kind": "large"})
        world.job("a", 2, gpu=1).job("b", 1, gpu=4)
        for name, minimum in (("a", 2), ("b", 1)):
            world.gang(name, minimum, bundle=["a", "b"])
        world.run()
        assert world.spread() == {"small": 2, "large": 1}


class TestMates:
    def test_a_mate_that_nobody_declares_is_waited_for(self) -> None:
        world = Scenario().nodes(2, gpu=8).job("a", 2, gpu=1).gang("a", 2, bundle=["a", "b"]).run()
        assert world.placed() == []
        assert world.why("a").message == "gang ns/a waits for gang ns/b of its bundle: no pod or object declares it"
        bundle(world, "a", "b").run()
        assert len(world.placed()) == 4

    def test_a_mate_that_goes_away_is_waited_for_again(self) -> None:
        world = Scenario().node("n1", gpu=3)
        bundle(world, "a", "b").run()
        world.gone("b-0", "b-1").no_gang("b").run()
        assert "no pod or object declares it" in world.why("a").message
        assert world.placed() == []

    def test_a_gang_may_leave_its_bundle(self) -> None:
        world = Scenario().node("n1", gpu=3)
        bundle(world, "a", "b").run()
        assert world.placed() == []
        world.gang("a", 2, bundle=[]).run()
        assert world.placed() == ["a-0", "a-1"]
        assert world.why("b").code == "NotEnoughResources", "its own bundle still names a, whose quorum holds"
        world.gang("b", 2, bundle=[]).run()
        assert world.why("b").code == "NotEnoughResources"

    def test_a_bundle_may_be_declared_by_one_side_only(self) -> None:
        """Then the other gang goes on its own, and the one that names it waits for it."""
        world = Scenario().node("n1", gpu=2)
        world.job("b", 2, gpu=1).job("a", 2, gpu=1).gang("a", 2, bundle=["a", "b"]).run()
        assert world.placed() == ["b-0", "b-1"]
        assert world.content("b")
        assert world.why("a").code == "NotEnoughResources"
        world.node("n2", gpu=2).run()
        assert len(world.placed()) == 4

    def test_a_one_sided_bundle_brings_its_mate_along(self) -> None:
        world = Scenario().node("n1", gpu=4)
        world.job("a", 2, gpu=1).gang("a", 2, bundle=["a", "b"], created=1).job("b", 2, gpu=1).run()
        assert len(world.placed()) == 4
        assert len(world.order) == 4, "nobody is bound twice"

    def test_surplus_of_a_mate_is_placed_once(self) -> None:
        world = Scenario().node("n1", gpu=8)
        world.job("a", 3, minimum=2, gpu=1).gang("a", 2, bundle=["a", "b"])
        world.job("b", 4, minimum=2, gpu=1).run()
        assert sorted(world.order) == sorted(set(world.order))
        assert len(world.placed()) == 7

    def test_a_running_bundle_lets_a_late_member_join(self) -> None:
        world = bundle(Scenario().node("n1", gpu=8), "a", "b").run()
        world.pod("a-late", gang="a", gpu=1).run()
        assert len(world.placed()) == 5

    @pytest.mark.parametrize("gone", ["a", "b"])
    def test_when_a_whole_gang_finished_its_mates_new_members_wait(self, gone: str) -> None:
        """All gangs of a bundle must hold their quorum at the same time."""
        world = bundle(Scenario().node("n1", gpu=8), "a", "b").run()
        other = "b" if gone == "a" else "a"
        world.finishes(f"{gone}-0", f"{gone}-1").pod(f"{other}-late", gang=other, gpu=1).run()
        assert world.waiting() == [f"{other}-late"]
        assert f"gang ns/{gone} has 0 of the 2 members" in world.why(other).message
