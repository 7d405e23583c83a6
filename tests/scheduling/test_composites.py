"""Composites: a required number of their gangs starts together, or none."""

from __future__ import annotations

import pytest

from phalanx.dialects.families.native import NAMING
from phalanx.model.composite import Composite
from phalanx.model.events import CompositeRemoved, CompositeUpdated
from phalanx.model.gang import GangKey, GroupRef, MatchPolicy, Problem
from phalanx.model.topology import TopologyRule

from .scenario import NAMESPACE, Scenario

PREEMPTING = """
actions: "allocate, preempt, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: binpack}]}]
"""


class World(Scenario):
    def composite(self, name: str, least: int = 0, parent: str = "", **fields: object) -> World:
        key = GangKey(NAMESPACE, name)
        ref = GroupRef(
            "scheduling.k8s.io", "v1alpha3", "CompositePodGroup", "compositepodgroups", NAMESPACE, name, name
        )
        above = GangKey(NAMESPACE, parent) if parent else None
        spec = Composite(key, ref, least, above, **fields)  # type: ignore[arg-type]
        self.observe(f"composite {name}", CompositeUpdated(spec))
        return self

    def no_composite(self, name: str) -> World:
        self.observe(f"composite {name}", CompositeRemoved(GangKey(NAMESPACE, name)))
        return self

    def group(self, name: str, members: int, parent: str, minimum: int | None = None, **fields: object) -> World:
        """Declare a native group below a composite, with identical members."""
        declared = {key: fields.pop(key) for key in ("workload", "priority") if key in fields}
        self.gang(
            name,
            members if minimum is None else minimum,
            rules=NAMING.rules,
            match_policy=MatchPolicy.UNTIL_SCHEDULED,
            composite=GangKey(NAMESPACE, parent),
            **declared,
        )
        self.pods(name, members, gang=name, **fields)
        return self

    def started(self) -> set[str]:
        return {name.rpartition("-")[0] for name in self.placed()}


class TestGangs:
    def test_all_required_groups_of_a_composite_start_together(self) -> None:
        world = (
            World().node("n1", gpu=8).composite("c", 2).group("a", 4, "c", gpu=1).group("b", 4, "c", gpu=1).run()
        )
        assert world.started() == {"a", "b"}
        assert {bind.cause for plan in world.plans for bind in plan.binds} == {"c1"}

    def test_no_group_starts_if_one_lacks_room_and_each_verdict_names_the_missing_one(self) -> None:
        world = (
            World().node("n1", gpu=7).composite("c", 2).group("a", 4, "c", gpu=1).group("b", 4, "c", gpu=1).run()
        )
        assert world.started() == set()
        assert world.why("b").code == "NotEnoughResources"
        assert world.why("b").placeable == 3
        assert world.why("a").message.startswith(
            "gang ns/a waits for CompositePodGroup ns/c: only 1 of the 2 required groups can start; "
        )

    def test_required_number_of_groups_starts_and_the_remaining_follow_when_they_fit(self) -> None:
        world = World().node("n1", gpu=8).composite("c", 2)
        for name in "abd":
            world.group(name, 4, "c", gpu=1)
        world.run()
        assert world.started() == {"a", "b"}
        assert world.why("d").code == "NotEnoughResources"
        world.node("n2", gpu=4).run()
        assert world.started() == {"a", "b", "d"}

    def test_group_that_does_not_fit_is_skipped_for_one_that_does(self) -> None:
        world = World().node("n1", gpu=4).composite("c", 2)
        world.group("a", 2, "c", gpu=1).group("b", 8, "c", gpu=1).group("d", 2, "c", gpu=1).run()
        assert world.started() == {"a", "d"}

    def test_composite_waits_for_members_of_its_groups(self) -> None:
        world = World().node("n1", gpu=8).composite("c", 2)
        world.group("a", 2, "c", gpu=1).group("b", 1, "c", minimum=3, gpu=1).run()
        assert world.started() == set()
        assert world.why("b").message == "waiting for members of PodGroup ns/b: have 1 of 3 pods"
        assert world.why("a").message.endswith("gang ns/b: waiting for members of PodGroup ns/b: have 1 of 3 pods")
        world.pod("b-1", gang="b", gpu=1).pod("b-2", gang="b", gpu=1).run()
        assert world.started() == {"a", "b"}

    def test_composite_waits_for_missing_groups(self) -> None:
        world = World().node("n1", gpu=8).composite("c", 2).group("a", 2, "c", gpu=1).run()
        assert world.started() == set()
        assert world.why("a").message == (
            "gang ns/a waits for CompositePodGroup ns/c: only 1 of the 2 required groups can start"
        )
        assert world.why("a").change == "create 1 more group"
        world.group("b", 2, "c", gpu=1).run()
        assert world.started() == {"a", "b"}

    def test_members_above_the_minimum_of_a_group_start_later_and_singly(self) -> None:
        world = World().node("n1", gpu=5).composite("c", 2)
        world.group("a", 3, "c", minimum=2, gpu=1).group("b", 3, "c", minimum=2, gpu=1).run()
        assert len(world.placed()) == 5
        assert world.started() == {"a", "b"}

    def test_composite_is_woken_by_added_room(self) -> None:
        world = (
            World().node("n1", gpu=4).composite("c", 2).group("a", 4, "c", gpu=1).group("b", 4, "c", gpu=1).run()
        )
        assert world.started() == set()
        assert world.node("n2", gpu=4).run().started() == {"a", "b"}

    def test_group_that_lost_all_members_restarts_alone_after_the_composite_has_started(self) -> None:
        world = (
            World().node("n1", gpu=4).composite("c", 2).group("a", 2, "c", gpu=1).group("b", 2, "c", gpu=1).run()
        )
        world.composite("c", 2, initiated=True).gone("a-0", "a-1").finishes("b-0")
        world.pod("a-2", gang="a", gpu=1).pod("a-3", gang="a", gpu=1).run()
        assert {"a-2", "a-3"} <= set(world.placed())


class TestBasic:
    def test_groups_of_a_basic_composite_start_independently(self) -> None:
        world = World().node("n1", gpu=4).composite("c").group("a", 8, "c", gpu=1).group("b", 4, "c", gpu=1).run()
        assert world.started() == {"b"}
        assert world.why("a").code == "NotEnoughResources"

    def test_group_of_a_basic_composite_waits_until_the_composite_exists(self) -> None:
        world = World().node("n1", gpu=4).group("b", 4, "c", gpu=1).run()
        assert world.started() == set()
        assert (world.why("b").code, world.why("b").message) == (
            "CompositePodGroupNotFound",
            "waiting for CompositePodGroup ns/c",
        )
        assert world.composite("c").run().started() == {"b"}


class TestTrees:
    def tree(self, gpus: int) -> World:
        """Two replicas of a service, each with a leader and workers; one replica must start."""
        world = World().node("n1", gpu=gpus).composite("top", 1)
        for replica in ("r1", "r2"):
            world.composite(replica, 2, "top").group(f"{replica}l", 1, replica, gpu=1)
            world.group(f"{replica}w", 3, replica, gpu=1)
        return world

    @pytest.mark.parametrize(
        ("gpus", "started"),
        [(3, set()), (4, {"r1l", "r1w"}), (7, {"r1l", "r1w"}), (8, {"r1l", "r1w", "r2l", "r2w"})],
    )
    def test_composite_of_composites_starts_with_a_quorum_of_quorums(self, gpus: int, started: set[str]) -> None:
        assert self.tree(gpus).run().started() == started

    def test_failed_attempt_of_a_child_composite_holds_no_room(self) -> None:
        world = self.tree(7).run()
        assert len(world.placed()) == 4
        world.pod("lone", gpu=3).run()
        assert "lone" in world.placed()

    def test_surplus_child_composite_starts_alone_and_whole(self) -> None:
        world = self.tree(7).run()
        assert world.why("r2w").code == "NotEnoughResources"
        assert world.why("r2l").message.startswith(
            "gang ns/r2l waits for CompositePodGroup ns/r2: only 1 of the 2 required groups can start; gang ns/r2w"
        )
        assert world.node("n2", gpu=1).run().started() == {"r1l", "r1w", "r2l", "r2w"}

    def test_verdict_names_a_required_group_and_no_other(self) -> None:
        world = World().node("n1", gpu=8).composite("root", 2)
        world.composite("l", 1, "root").group("l1", 2, "l", gpu=1).group("l2", 0, "l", minimum=2)
        world.composite("r", 1, "root").group("r1", 0, "r", minimum=2).run()
        assert world.why("l1").message == (
            "gang ns/l1 waits for CompositePodGroup ns/root: only 1 of the 2 required groups can start; "
            "gang ns/r1: waiting for members of PodGroup ns/r1: have 0 of 2 pods"
        )

    def test_composite_waits_for_a_missing_parent(self) -> None:
        world = World().node("n1", gpu=8).composite("mid", 1, "top").group("a", 1, "mid", gpu=1).run()
        assert world.why("a").message == "waiting for CompositePodGroup ns/top"
        assert world.composite("top", 1).run().started() == {"a"}

    def test_cycle_of_composites_is_invalid_and_every_group_below_says_so(self) -> None:
        world = (
            World().node("n1", gpu=8).composite("x", 1, "y").composite("y", 1, "x").group("a", 1, "x", gpu=1).run()
        )
        assert world.started() == set()
        assert world.why("a").code == "InvalidComposite"
        assert "ns/x -> ns/y -> ns/x" in world.why("a").message
        assert world.why("a").fault

    def test_composite_tree_of_more_than_four_levels_is_invalid(self) -> None:
        world = World().node("n1", gpu=8).composite("c1", 1)
        for level in (2, 3):
            world.composite(f"c{level}", 1, f"c{level - 1}")
        world.group("a", 1, "c3", gpu=1).run()
        assert world.started() == {"a"}
        world.composite("c4", 1, "c3").group("b", 1, "c4", gpu=1).run()
        assert world.why("b").message == "the tree of CompositePodGroup ns/c1 is 5 levels deep at PodGroup ns/b"

    def test_groups_of_several_workloads_form_no_tree(self) -> None:
        world = World().node("n1", gpu=8).composite("c", 1, workload="one")
        world.group("a", 1, "c", workload="two", gpu=1).run()
        assert world.started() == set()
        assert "has groups of several Workloads (one, two)" in world.why("a").message

    def test_unreadable_composite_holds_its_tree(self) -> None:
        world = World().node("n1", gpu=8).composite("c", 1, problem=Problem.of("UnknownPolicy", "odd", "use gang"))
        world.group("a", 1, "c", gpu=1).run()
        assert (world.why("a").code, world.why("a").message) == ("UnknownPolicy", "odd")

    def test_corrected_tree_starts(self) -> None:
        world = (
            World().node("n1", gpu=8).composite("x", 1, "y").composite("y", 1, "x").group("a", 1, "x", gpu=1).run()
        )
        world.composite("y", 1).run()
        assert world.started() == {"a"}


class TestPriority:
    def test_priority_of_a_composite_applies_to_all_groups_below(self) -> None:
        world = World().node("n1", gpu=2)
        world.job("early", 2, gpu=1, priority=5)
        world.composite("c", 1, priority=9).group("a", 2, "c", gpu=1).run()
        assert world.started() == {"a"}

    def test_composite_preempts_for_its_required_number_of_groups(self) -> None:
        world = World(PREEMPTING).node("n1", gpu=4).job("low", 4, minimum=1, gpu=1).run()
        world.composite("c", 2, priority=9)
        for name in "abd":
            world.group(name, 1, "c", gpu=1, priority=9)
        world.run()
        assert world.started() >= {"a", "b"}
        assert len(world.evicted) == 2

    def started_with_room_for_a_second_group(self) -> World:
        """Return a started composite whose second group waits for a victim with a long grace period."""
        world = World(PREEMPTING).node("n1", gpu=2).node("n2", gpu=1)
        world.pod("low", gpu=1, more={"grace": 300}).composite("c", 1, priority=9)
        world.group("a", 1, "c", gpu=1, priority=9).work().confirm()
        world.composite("c", 1, priority=9, initiated=True).group("b", 2, "c", gpu=1, priority=9).work()
        assert world.evicted == ["low"]
        assert sorted(world.held()) == ["b-0", "b-1"]
        return world.becomes("low", terminating=True, condemned="phalanx", leaves=world.now + 300)

    def test_nominated_group_of_a_started_composite_holds_its_room_in_its_next_turn(self) -> None:
        world = self.started_with_room_for_a_second_group()
        held = world.held()
        world.composite("c", 1, priority=8, initiated=True).work()
        assert world.held() == held
        assert world.why("b").code == "WaitingForEvictedPods"
        assert world.gone("low").work().started() == {"a", "b"}

    def test_nominated_group_of_a_started_composite_holds_its_room_in_the_next_process(self) -> None:
        world = self.started_with_room_for_a_second_group()
        held = world.held()
        for uid, node in held.items():
            world.becomes(uid, nominated_node=node)
        world.restart().work()
        assert (world.held(), world.evicted) == (held, ["low"])
        assert world.gone("low").work().started() == {"a", "b"}

    def test_composite_with_preemption_policy_never_evicts_no_pod(self) -> None:
        world = World(PREEMPTING).node("n1", gpu=4).job("low", 4, minimum=1, gpu=1).run()
        world.composite("c", 1, priority=9, preempts=False).group("a", 1, "c", gpu=1, priority=9).run()
        assert world.evicted == []


class TestDisruption:
    def tied(self, unit: bool) -> World:
        """Two groups, each with one member above its minimum, fill a cluster; a preemptor needs one slot."""
        world = World(PREEMPTING).node("n1", gpu=6).composite("top", 2, unit=unit)
        for name in "ab":
            world.group(name, 3, "top", minimum=2, gpu=1)
        world.run()
        assert len(world.placed()) == 6
        return world.pod("vip", gpu=1, priority=9)

    def test_composite_disrupted_only_as_a_whole_is_evicted_whole(self) -> None:
        world = self.tied(unit=True).run()
        assert sorted(world.evicted) == ["a-0", "a-1", "a-2", "b-0", "b-1", "b-2"]

    def test_composite_without_disruption_mode_loses_single_members(self) -> None:
        world = self.tied(unit=False).run()
        assert len(world.evicted) == 1


class TestTopology:
    def test_required_groups_share_one_domain_and_each_has_its_own_within_it(self) -> None:
        world = World()
        for zone, racks in (("z1", "ab"), ("z2", "cd")):
            for rack in racks:
                for number in (1, 2):
                    labels = {"zone": zone, "rack": rack}
                    world.node(f"{rack}{number}", gpu=1 if rack != "a" else 0, labels=labels)
        world.composite("c", 2, topology=TopologyRule.by_label("zone"))
        for name in "xy":
            world.group(name, 2, "c", gpu=1)
            world.gang(name, 2, topology=TopologyRule.by_label("rack"))
        world.run()
        used = {name: {world.where(pod)[0] for pod in world.placed(f"{name}-")} for name in "xy"}
        assert sorted(map(sorted, used.values())) == [["c"], ["d"]]

    def test_no_group_starts_where_no_domain_fits_enough_groups(self) -> None:
        world = World()
        for zone in ("z1", "z2"):
            world.node(zone, gpu=2, labels={"zone": zone})
        world.composite("c", 2, topology=TopologyRule.by_label("zone"))
        world.group("x", 2, "c", gpu=1).group("y", 2, "c", gpu=1).run()
        assert world.started() == set()
        assert "(best of 2 domains of zone)" in world.why("x").message + world.why("y").message

    def test_later_group_is_placed_in_the_domain_of_the_composite(self) -> None:
        world = World()
        for number, zone in enumerate(("z1", "z1", "z2", "z2", "z2")):
            world.node(f"n{number}", gpu=2, labels={"zone": zone})
        world.composite("c", 1, topology=TopologyRule.by_label("zone"))
        world.group("x", 2, "c", gpu=2).run()
        assert world.spread() == {"n0": 1, "n1": 1}
        world.group("y", 1, "c", gpu=2).run()
        assert world.started() == {"x"}

    def test_surplus_members_of_a_group_stay_in_the_domain_of_the_composite(self) -> None:
        world = World()
        for number, zone in enumerate(("z1", "z2", "z2", "z1")):
            world.node(f"n{number}", gpu=2, labels={"zone": zone})
        world.composite("c", 1, topology=TopologyRule.by_label("zone"))
        world.group("x", 3, "c", minimum=1, gpu=2).run()
        assert world.spread() == {"n0": 1, "n3": 1}
        assert world.waiting() == ["x-2"]
        assert "0/2 nodes in z1 (zone of the placed pods)" in world.why_pod("x-2").message
