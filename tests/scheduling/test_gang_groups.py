"""Gang groups: gangs that must be satisfied together are one unit of the queue."""

from __future__ import annotations

import pytest

from phalanx.model.gang import MOST_GANGS

from .scenario import Scenario


def gang_group(world: Scenario, *names: str, gpu: int = 1, members: int = 2) -> Scenario:
    for name in names:
        world.job(name, members, gpu=gpu)
        world.gang(name, members, gang_group=list(names), created=world.now)
    return world


class TestTogether:
    def test_all_gangs_of_a_gang_group_start_in_one_cycle(self) -> None:
        world = gang_group(Scenario().nodes(2, gpu=2), "ps", "worker").run()
        assert len(world.placed()) == 4
        assert [len(plan.binds) for plan in world.plans if plan.binds] == [4]
        assert world.content("ps")
        assert world.content("worker")

    def test_no_gang_of_a_gang_group_starts_if_one_has_no_room(self) -> None:
        world = Scenario().node("n1", gpu=3)
        gang_group(world, "ps", "worker").run()
        assert world.placed() == []
        assert world.why("worker").code == "NotEnoughResources"
        assert world.why("ps").code == "WaitingForGangGroup"
        assert (
            world.why("ps").message
            == f"gang ns/ps waits for gang ns/worker of its gang group: {world.why('worker').message}"
        )

    def test_interleaved_gang_groups_do_not_deadlock(self) -> None:
        """P12: {A, B} and {C, D}, created A C B D, with room for one gang group."""
        world = Scenario().node("n1", gpu=4)
        for name, mates in (("a", "ab"), ("c", "cd"), ("b", "ab"), ("d", "cd")):
            world.now += 1
            world.job(name, 2, gpu=1).gang(name, 2, gang_group=list(mates), created=world.now)
        world.run()
        assert world.placed() == ["a-0", "a-1", "b-0", "b-1"]
        assert world.why("d").code == "WaitingForGangGroup"
        world.finishes("a-0", "a-1", "b-0", "b-1").run()
        assert world.placed("c") + world.placed("d") == ["c-0", "c-1", "d-0", "d-1"]

    def test_gang_group_waits_for_members_of_any_of_its_gangs(self) -> None:
        world = Scenario().nodes(2, gpu=8)
        gang_group(world, "ps", "worker").gone("worker-1").run()
        assert world.placed() == []
        assert world.why("worker").message == "only 1 of the 2 required pods of gang ns/worker exist"
        assert world.why("ps").code == "WaitingForGangGroup"
        world.pod("worker-1", gang="worker", gpu=1).run()
        assert len(world.placed()) == 4

    def test_first_gang_leaves_room_for_the_second_of_its_gang_group(self) -> None:
        """The mate fits only the node that the first gang would prefer."""
        world = Scenario().node("small", gpu=2).node("large", gpu=4, labels={"kind": "large"})
        world.job("a", 2, gpu=1).job("b", 1, gpu=4)
        for name, minimum in (("a", 2), ("b", 1)):
            world.gang(name, minimum, gang_group=["a", "b"])
        world.run()
        assert world.spread() == {"small": 2, "large": 1}


class TestMates:
    def test_gang_group_waits_for_an_undeclared_mate(self) -> None:
        world = Scenario().nodes(2, gpu=8).job("a", 2, gpu=1).gang("a", 2, gang_group=["a", "b"]).run()
        assert world.placed() == []
        assert (
            world.why("a").message
            == "gang ns/a waits for gang ns/b of its gang group: no pod or object declares it"
        )
        gang_group(world, "a", "b").run()
        assert len(world.placed()) == 4

    def test_gang_group_waits_again_for_a_deleted_mate(self) -> None:
        world = Scenario().node("n1", gpu=3)
        gang_group(world, "a", "b").run()
        world.gone("b-0", "b-1").no_gang("b").run()
        assert "no pod or object declares it" in world.why("a").message
        assert world.placed() == []

    def test_gang_can_leave_its_gang_group(self) -> None:
        world = Scenario().node("n1", gpu=3)
        gang_group(world, "a", "b").run()
        assert world.placed() == []
        world.gang("a", 2, gang_group=[]).run()
        assert world.placed() == ["a-0", "a-1"]
        assert world.why("b").message == "gang ns/b waits for gang ns/a, whose gang groups do not list gang ns/b"
        world.gang("b", 2, gang_group=[]).run()
        assert world.why("b").code == "NotEnoughResources"

    def test_gang_is_not_tied_by_a_one_sided_declaration(self) -> None:
        """The gang that names the other waits for its declaration; the other gang starts alone."""
        world = Scenario().node("n1", gpu=4)
        world.job("b", 2, gpu=1).job("a", 2, gpu=1).gang("a", 2, gang_group=["a", "b"]).run()
        assert world.placed() == ["b-0", "b-1"]
        assert world.content("b")
        assert world.why("a").code == "WaitingForGangGroup"
        assert (
            world.why("a").change
            == "list the same gang groups on ns/b and ns/a, or remove ns/b from the gang groups of ns/a"
        )
        world.gang("b", 2, gang_group=["b", "a"]).run()
        assert len(world.placed()) == 4

    def test_gangs_are_tied_through_a_gang_that_both_name(self) -> None:
        world = Scenario().node("n1", gpu=5)
        for name, named in (("a", "ab"), ("b", "abc"), ("c", "bc")):
            world.job(name, 2, gpu=1).gang(name, 2, gang_group=list(named))
        assert world.run().placed() == []
        assert len(world.node("n2", gpu=1).run().placed()) == 6

    def test_gang_group_above_the_size_limit_is_held_and_blocks_no_other_unit(self) -> None:
        names = [f"g{number:02}" for number in range(MOST_GANGS + 1)]
        world = Scenario().node("n1", gpu=64).job("other", 2, gpu=1)
        for at, name in enumerate(names):  # a chain: each gang names its neighbours only
            world.job(name, 1, gpu=1).gang(name, 1, gang_group=names[max(0, at - 1) : at + 2])
        world.run()
        assert world.placed() == ["other-0", "other-1"]
        assert world.why("g00").message == f"the gang groups of gang ns/g00 connect more than {MOST_GANGS} gangs"
        # One gang fewer, at the far end, and all of them start.
        world.gang(names[-1], 1, gang_group=[]).gang(names[-2], 1, gang_group=names[-3:-1]).run()
        assert len(world.placed()) == 2 + MOST_GANGS + 1

    def test_running_gang_group_lets_a_late_member_join(self) -> None:
        world = gang_group(Scenario().node("n1", gpu=8), "a", "b").run()
        world.pod("a-late", gang="a", gpu=1).run()
        assert len(world.placed()) == 5

    @pytest.mark.parametrize("gone", ["a", "b"])
    def test_new_members_wait_when_a_whole_mate_gang_has_finished(self, gone: str) -> None:
        """All gangs of a gang group must have their quorum at the same time."""
        world = gang_group(Scenario().node("n1", gpu=8), "a", "b").run()
        other = "b" if gone == "a" else "a"
        world.finishes(f"{gone}-0", f"{gone}-1").pod(f"{other}-late", gang=other, gpu=1).run()
        assert world.waiting() == [f"{other}-late"]
        assert f"0 of the 2 required pods of gang ns/{gone} exist" in world.why(other).message
