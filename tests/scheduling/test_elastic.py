"""Elastic gangs above their minimum: growth, shrinking, and the disturbance of other members."""

from __future__ import annotations

import pytest

from phalanx.model.topology import SubgroupRule

from .scenario import Scenario

RECLAIMING = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: capacity}, {name: nodeorder}]}]
"""


def ranked(world: Scenario, name: str, minimum: int, members: int, **fields: object) -> Scenario:
    """A gang whose members have ranks, each on a node of its own."""
    world.gang(name, minimum, created=world.now)
    for index in range(members):
        world.pod(f"{name}-{index}", gang=name, more={"index": index}, **fields)  # type: ignore[arg-type]
    return world


class TestShrinking:
    """E2.2: surplus before whole gangs, the highest rank first, the leader last, never below the minimum."""

    def test_member_of_the_highest_rank_is_evicted_first(self) -> None:
        world = ranked(Scenario(RECLAIMING).nodes(6, cpu=1), "train", 2, 6, cpu=1).run()
        world.pods("urgent", 2, cpu=1, priority=10).run()
        assert sorted(world.evicted) == ["train-4", "train-5"]

    def test_member_that_started_last_is_evicted_first(self) -> None:
        """Run times do not matter: the same work is lost with any member."""
        world = Scenario(RECLAIMING).nodes(4, cpu=1).gang("train", 1)
        for index, started in ((0, 10), (1, 900), (2, 500), (3, 100)):
            more = {"index": index, "started": started}
            world.pod(f"train-{index}", gang="train", node=f"n{index + 1}", cpu=1, more=more)
        world.run().pod("urgent", cpu=1, priority=10).run()
        assert world.evicted == ["train-3"]

    @pytest.mark.parametrize("leader", [0, 3, 5])
    def test_leader_is_not_evicted_while_another_member_can_be(self, leader: int) -> None:
        world = Scenario(RECLAIMING).nodes(6, cpu=1).gang("train", 1)
        for index in range(6):
            world.pod(f"train-{index}", gang="train", cpu=1, more={"index": index, "leads": index == leader})
        world.run().pods("urgent", 5, cpu=1, priority=10).run()
        assert len(world.evicted) == 5
        assert f"train-{leader}" not in world.evicted

    def test_member_of_rank_0_is_the_leader_without_a_leader_role(self) -> None:
        world = ranked(Scenario(RECLAIMING).nodes(3, cpu=1), "train", 1, 3, cpu=1).run()
        world.pods("urgent", 2, cpu=1, priority=10).run()
        assert sorted(world.evicted) == ["train-1", "train-2"]

    def test_whole_gang_is_evicted_where_surplus_is_not_enough(self) -> None:
        world = ranked(Scenario(RECLAIMING).nodes(3, cpu=1), "train", 1, 3, cpu=1).run()
        world.job("urgent", 3, cpu=1, priority=10).run()
        assert sorted(world.evicted) == ["train-0", "train-1", "train-2"]
        assert len(world.placed("urgent")) == 3

    def test_leader_without_other_members_protects_no_gang(self) -> None:
        world = Scenario(RECLAIMING).node("n1", cpu=1).gang("train", 1)
        world.pod("train-0", gang="train", cpu=1, more={"leads": True}).run()
        world.pod("urgent", cpu=1, priority=10).run()
        assert world.evicted == ["train-0"]

    def test_only_one_of_several_leaders_is_protected(self) -> None:
        world = Scenario(RECLAIMING).nodes(3, cpu=1).gang("train", 1)
        world.pods("train", 3, gang="train", cpu=1, more={"leads": True}).run()
        world.pods("urgent", 2, cpu=1, priority=10).run()
        assert len(world.evicted) == 2

    def test_gang_is_not_broken_while_another_gang_has_surplus(self) -> None:
        world = ranked(Scenario(RECLAIMING).nodes(5, cpu=1), "elastic", 1, 3, cpu=1)
        world.job("rigid", 2, cpu=1).run()
        world.pods("urgent", 2, cpu=1, priority=10).run()
        assert sorted(world.evicted) == ["elastic-1", "elastic-2"]


class TestGrowing:
    """E2.1 and E2.8: quorums before surplus, surplus in turns, and a start with the members that fit."""

    def test_elastic_gang_starts_with_the_members_that_fit(self) -> None:
        world = Scenario().node("n1", cpu=5).job("train", 8, 3, cpu=1).run()
        assert len(world.placed("train")) == 5

    def test_elastic_gang_grows_when_room_is_added(self) -> None:
        world = Scenario().node("n1", cpu=5).job("train", 8, 3, cpu=1).run()
        world.node("n2", cpu=2).run()
        assert len(world.placed("train")) == 7

    def test_quorum_of_a_new_gang_is_placed_before_surplus_of_running_gangs(self) -> None:
        world = Scenario().node("n1", cpu=5).job("old", 8, 3, cpu=1).run()
        world.job("new", 4, 2, cpu=1).run()
        world.node("n2", cpu=3).run()
        assert len(world.placed("new")) >= 2

    def test_surplus_subgroup_is_placed_whole_or_not_at_all(self) -> None:
        """A replica on several hosts: half of it is useless."""
        rule = SubgroupRule("slices", keys=("slice",), size=2, least=1)
        world = Scenario().node("n1", cpu=5).gang("serve", 2, subgroups=(rule,))
        for number in range(3):
            labels = (("slice", str(number)),)
            world.pods(f"serve-{number}", 2, gang="serve", cpu=1, more={"labels": labels})
        world.run()
        assert len(world.placed("serve")) == 4


class TestTurns:
    """E2.4: evicted surplus returns as surplus and disturbs no other unit."""

    def test_evicted_surplus_waits_behind_its_preemptor(self) -> None:
        world = Scenario(RECLAIMING).node("n1", cpu=4)
        world.recreates = True
        world.queue("a", deserved={"cpu": 2}).queue("b", deserved={"cpu": 2})
        world.job("elastic", 4, 1, queue="a", cpu=1).run()
        world.job("rigid", 2, queue="b", cpu=1).run()
        assert len(world.placed("elastic")) == 2
        assert len(world.placed("rigid")) == 2
        assert len(world.evicted) == 2

    def test_gang_that_lost_surplus_is_still_satisfied(self) -> None:
        world = Scenario(RECLAIMING).node("n1", cpu=4)
        world.recreates = True
        world.job("elastic", 4, 1, cpu=1).run().pods("urgent", 2, cpu=1, priority=10).run()
        assert world.content("elastic") or not world.said("elastic")


class TestMinimum:
    """E2.6: a changed minimum applies from the next plan on; no member is evicted because of it."""

    def test_lowered_minimum_evicts_no_member(self) -> None:
        world = Scenario(RECLAIMING).node("n1", cpu=4).job("train", 4, cpu=1).run()
        world.gang("train", 1).run()
        assert world.evicted == []
        assert len(world.placed("train")) == 4

    def test_lowered_minimum_turns_members_into_surplus(self) -> None:
        world = Scenario(RECLAIMING).node("n1", cpu=4).job("train", 4, cpu=1).run()
        world.gang("train", 1).pods("urgent", 2, cpu=1, priority=10).run()
        assert len(world.evicted) == 2

    def test_raised_minimum_neither_evicts_nor_restarts_a_member(self) -> None:
        world = Scenario(RECLAIMING).node("n1", cpu=4).job("train", 4, 2, cpu=1).run()
        world.gang("train", 6).pods("train-more", 2, gang="train", cpu=1).run()
        assert world.evicted == []
        assert len(world.placed("train")) == 4
        assert world.waiting("train") == ["train-more-0", "train-more-1"]

    def test_terminating_members_do_not_count_but_hold_their_room(self) -> None:
        """E2.7."""
        world = Scenario().node("n1", cpu=4).job("train", 4, 2, cpu=1).run()
        world.becomes("train-3", terminating=True).pod("other", cpu=1).run()
        assert world.where("other") == ""
        world.gone("train-3").run()
        assert world.where("other") == "n1"


class TestQuota:
    """E2.9: running pods are charged; surplus is evicted first."""

    def test_surplus_stops_at_the_limit_of_its_queue(self) -> None:
        world = Scenario(RECLAIMING).node("n1", cpu=8).queue("q", capability={"cpu": 3})
        world.job("train", 8, 2, queue="q", cpu=1).run()
        assert len(world.placed("train")) == 3

    def test_surplus_of_a_gang_is_evicted_before_a_rigid_gang_of_its_queue(self) -> None:
        world = Scenario(RECLAIMING).node("n1", cpu=6)
        world.queue("a", deserved={"cpu": 3}).queue("b", deserved={"cpu": 3})
        world.job("rigid", 3, queue="a", cpu=1).job("elastic", 3, 1, queue="a", cpu=1).run()
        world.job("owner", 2, queue="b", cpu=1).run()
        assert all(name.startswith("elastic") for name in world.evicted)
        assert len(world.evicted) == 2


class TestScaleUpDelay:
    """E2.3: where joining members restart the gang, they join in batches, and not too often."""

    def world(self) -> Scenario:
        """Three of eight members run since second 1000; the gang grows every 180 seconds at most."""
        world = Scenario().node("n1", cpu=3).gang("train", 2, scale_up_delay=180)
        for index in range(3):
            more = {"index": index, "bound": 1000}
            world.pod(f"train-{index}", gang="train", node="n1", cpu=1, more=more)
        for index in range(3, 8):
            world.pod(f"train-{index}", gang="train", cpu=1, more={"index": index})
        return world.run()

    def later(self, world: Scenario, when: int) -> Scenario:
        world.now = when
        world.scheduler.activate_due(when)
        return world.run()

    def test_delayed_gang_starts_with_all_members_that_fit(self) -> None:
        world = Scenario().node("n1", cpu=5).job("train", 8, 2, cpu=1)
        world.gang("train", 2, scale_up_delay=180).run()
        assert len(world.placed("train")) == 5

    def test_delayed_gang_does_not_grow_before_its_delay_is_over(self) -> None:
        world = self.world().node("n2", cpu=4).run()
        assert len(world.placed("train")) == 3
        assert world.why_pod("train-3").code == "ScaleUpDelayed"
        assert not world.why_pod("train-3").unschedulable

    def test_all_members_that_fit_join_at_once_after_the_delay(self) -> None:
        world = self.world().node("n2", cpu=2).run()
        world.node("n3", cpu=2).run()
        assert world.scheduler.next_recheck == 1180
        self.later(world, 1180)
        assert len(world.placed("train")) == 7
        assert len([plan for plan in world.plans if plan.binds]) == 1

    def test_next_members_wait_for_another_delay(self) -> None:
        world = self.later(self.world().node("n2", cpu=2).run(), 1180)
        for name in world.placed("train"):
            world.becomes(name, bound=1180 if world.where(name) == "n2" else 1000)
        world.node("n3", cpu=2).run()
        assert len(world.placed("train")) == 5
        assert world.scheduler.next_recheck == 1360

    def test_quorum_is_not_delayed(self) -> None:
        world = self.world().gang("train", 5, scale_up_delay=180).node("n2", cpu=4).run()
        assert len(world.placed("train")) >= 5

    def test_other_pods_use_the_room_during_the_delay(self) -> None:
        world = self.world().node("n2", cpu=4).pods("other", 4, cpu=1).run()
        assert len(world.placed("other")) == 4
