"""Gangs with a topology: the smallest domain that fits all members."""

from __future__ import annotations

from typing import Any, Self

import pytest

from phalanx.model.events import HyperNodeUpdated
from phalanx.model.selectors import Requirement
from phalanx.model.topology import HyperNode, HyperNodeMember, SubgroupRule, TopologyRule

from .scenario import Scenario

RACK, ZONE, HOST = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone", "kubernetes.io/hostname"
IN_A_RACK = TopologyRule.by_label(RACK)
AWARE = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins:
  - {name: predicates}
  - {name: nodeorder}
  - name: network-topology-aware
    arguments: {levels: [topology.kubernetes.io/zone, topology.kubernetes.io/rack], layers: {leaf: "net/leaf"}}
"""


class Network(Scenario):
    """Racks of nodes; nodes are named `<rack><number>`."""

    def rack(
        self, name: str, nodes: int, zone: str = "", cpu: int = 4, labels: dict[str, str] | None = None
    ) -> Self:
        for number in range(1, nodes + 1):
            stated = {RACK: name, HOST: f"{name}{number}", **(labels or {})}
            self.node(f"{name}{number}", cpu=cpu, labels={**stated, **({ZONE: zone} if zone else {})})
        return self

    def hypernode(self, name: str, tier: int, *members: str, tier_name: str = "") -> Self:
        """Members that start with `+` are HyperNodes, all others patterns for nodes."""
        read = tuple(
            HyperNodeMember(True, each[1:]) if each.startswith("+") else HyperNodeMember(pattern=each)
            for each in members
        )
        return self.observe(f"hypernode {name}", HyperNodeUpdated(HyperNode(name, tier, tier_name, read)))

    def close(self, name: str, members: int, rule: TopologyRule = IN_A_RACK, cpu: int = 4, **fields: Any) -> Self:
        """A gang of members that each fill a node of the usual size."""
        self.gang(name, fields.pop("minimum", members), created=self.now, topology=rule, **fields)
        return self.pods(name, members, gang=name, cpu=cpu)

    def racks(self, prefix: str = "") -> set[str]:
        return {self.where(name).rstrip("0123456789") for name in self.placed(prefix)}


class TestRequiredLevels:
    def test_gang_is_placed_whole_in_one_rack_although_another_node_is_emptier(self) -> None:
        world = Network().rack("a", 2, cpu=64).rack("b", 3).close("job", 3).run()
        assert world.racks("job") == {"b"} or world.racks("job") == {"a"}
        assert len(world.racks("job")) == 1

    def test_of_fitting_racks_the_tightest_is_chosen(self) -> None:
        world = Network().rack("wide", 5).rack("tight", 3).rack("small", 2).close("job", 3).run()
        assert world.racks("job") == {"tight"}

    def test_of_equally_fitting_racks_the_fullest_by_share_afterwards_is_chosen(self) -> None:
        world = Network().rack("a", 2).rack("b", 3).rack("c", 3)
        world.pod("b-full", cpu=4, node="b1").pod("c-part", cpu=2, node="c3")
        # With the members a is 6/8 full, b 10/12 and c 8/12; a and b have room for the same number.
        assert world.close("job", 3, cpu=2).run().racks("job") == {"b"}

    def test_hypernodes_of_one_tier_are_compared_by_share_as_well(self) -> None:
        world = Network().nodes(2, "a", cpu=4).nodes(3, "b", cpu=4)
        world.hypernode("sa", 1, "^a").hypernode("sb", 1, "^b").pod("b-full", cpu=4, node="b1")
        rule = TopologyRule(hypernodes=True, highest_tier=1)
        assert world.close("job", 3, rule, cpu=2).run().racks("job") == {"b"}

    def test_of_equally_tight_racks_the_first_one_known_is_chosen(self) -> None:
        assert Network().rack("b", 2).rack("a", 2).close("job", 2).run().racks("job") == {"b"}

    def test_level_below_the_required_one_is_tried_first(self) -> None:
        world = Network().rack("a", 2, zone="z1").rack("b", 2, zone="z1").rack("c", 3, zone="z2")
        world.close("two", 2, TopologyRule.by_label(ZONE)).run()
        assert len(world.racks("two")) == 1
        world.close("three", 3, TopologyRule.by_label(ZONE)).run()
        assert world.racks("three") == {"c"}

    @pytest.mark.parametrize(
        "level",
        [
            "fabric.topograph.run/tier-1",
            "accelerator.topograph.run/domain",
            "network.topology.nvidia.com/leaf",
            "nvidia.com/gpu.clique",
            "topology.k8s.aws/network-node-layer-3",
        ],
    )
    def test_labels_of_network_tools_are_levels_below_the_required_one(self, level: str) -> None:
        world = Network()
        for number, domain in enumerate("abcabc"):
            labels = {ZONE: "z", level: domain, HOST: f"{domain}{number}"}
            world.node(f"{domain}{number}", cpu=4, labels=labels)
        world.close("two", 2, TopologyRule.by_label(ZONE)).run()
        assert len(world.racks("two")) == 1

    def test_gang_is_not_split_and_its_verdict_names_the_nearest_rack(self) -> None:
        world = Network().rack("a", 2).rack("b", 3).rack("c", 1).close("job", 4).run()
        verdict = world.why("job")
        assert world.placed() == []
        assert verdict.message == (
            "only 3 of the 4 required pods of gang ns/job fit in b (best of 3 domains of "
            f"{RACK}); 0/3 nodes there are available for pod ns/job-0: 3 Insufficient cpu."
        )
        assert verdict.change == "add 4 cpu there, or require a wider topology level"
        assert (verdict.needed, verdict.placeable) == (4, 3)

    def test_nodes_without_the_topology_label_are_excluded(self) -> None:
        world = Network().rack("a", 1).nodes(5).close("job", 2).run()
        assert world.placed() == []
        assert "fit in a (the only domain of topology.kubernetes.io/rack)" in world.why("job").message

    def test_verdict_names_a_label_that_no_node_has(self) -> None:
        world = Network().nodes(2).close("job", 2).run()
        verdict = world.why("job")
        assert f"2 node(s) were in no domain: no node has the label {RACK}" in verdict.message
        assert (verdict.code, verdict.change) == ("NoEligibleNode", f"label nodes with {RACK}")

    def test_gang_is_woken_by_a_growing_rack(self) -> None:
        world = Network().rack("a", 2).close("job", 3).run()
        assert world.placed() == []
        world.rack("a", 3).run()
        assert world.racks("job") == {"a"}

    def test_gang_is_woken_by_an_added_label(self) -> None:
        world = Network().nodes(2, cpu=4).close("job", 2).run()
        for name in ("n1", "n2"):
            world.node(name, cpu=4, labels={RACK: "r"})
        assert world.run().placed("job") == ["job-0", "job-1"]

    def test_lack_of_room_in_one_rack_does_not_exclude_gangs_from_another(self) -> None:
        world = Network().rack("a", 2).rack("b", 2)
        for number in range(3):
            world.close(f"job{number}", 2)
        world.run()
        assert sorted(len(world.placed(f"job{number}")) for number in range(3)) == [0, 2, 2]


class TestPresentMembers:
    def test_running_members_pin_the_domain(self) -> None:
        world = Network().rack("a", 3).rack("b", 8)
        world.gang("job", 3, topology=IN_A_RACK).pod("job-0", gang="job", node="a1", cpu=4)
        world.pods("job-more", 2, gang="job", cpu=4).run()
        assert world.racks("job") == {"a"}

    def test_replacement_waits_for_its_rack(self) -> None:
        world = Network().rack("a", 2).rack("b", 4).close("job", 2).run()
        assert world.racks() == {"a"}
        world.finishes("job-1").gone("job-1").pod("other", cpu=4, node="a2").pod("job-2", gang="job", cpu=4).run()
        assert world.waiting() == ["job-2"]
        assert "fits in a (topology.kubernetes.io/rack of the placed pods)" in world.why("job").message
        world.gone("other").run()
        assert world.where("job-2") == "a2"

    def test_members_above_the_minimum_stay_in_the_rack(self) -> None:
        world = Network().rack("a", 2).rack("b", 4)
        world.gang("job", 1, topology=IN_A_RACK).pods("job", 3, gang="job", cpu=4).run()
        assert world.racks("job") == {"a"}
        assert world.waiting() == ["job-2"]
        assert "0/2 nodes in a (topology.kubernetes.io/rack of the placed pods)" in (world.why_pod("job-2").message)
        world.gone("job-0").run()
        assert world.where("job-2") in ("a1", "a2")

    def test_members_in_two_racks_leave_no_domain_for_more(self) -> None:
        world = Network().rack("a", 2).rack("b", 2)
        world.gang("job", 3, topology=IN_A_RACK).pod("x", gang="job", node="a1").pod("y", gang="job", node="b1")
        world.pod("z", gang="job", cpu=1).run()
        assert "4 node(s) were outside the one domain of topology.kubernetes.io/rack of all placed pods" in (
            world.why("job").message
        )

    def test_remainder_of_a_plan_stays_in_its_rack_after_a_restart(self) -> None:
        world = Network().rack("a", 3).rack("b", 3).close("job", 3)
        world.work()
        first = world.order[0]
        world.confirm(first).restart().run()
        assert len(world.racks("job")) == 1
        assert len(world.placed("job")) == 3


class TestPreferredLevels:
    RULE = TopologyRule(preferred=RACK)

    def test_one_rack_is_used_if_possible(self) -> None:
        assert Network().rack("a", 2).rack("b", 3).close("job", 3, self.RULE).run().racks("job") == {"b"}

    def test_next_higher_level_and_then_any_node_is_used_otherwise(self) -> None:
        world = Network(AWARE).rack("a", 2, "z1").rack("b", 2, "z2").rack("c", 2, "z2").rack("d", 2, "z3")
        world.close("four", 4, self.RULE).run()
        assert world.racks("four") == {"b", "c"}
        world.close("rest", 4, self.RULE).run()
        assert world.racks("rest") == {"a", "d"}

    def test_one_host_is_used_if_possible(self) -> None:
        world = Network().rack("a", 2).rack("b", 2).close("job", 4, self.RULE, cpu=1).run()
        assert len(world.spread("job")) == 1

    def test_verdict_of_a_gang_that_fits_nowhere_names_no_topology(self) -> None:
        world = Network().rack("a", 2).close("job", 3, self.RULE).run()
        assert world.why("job").message == (
            "only 2 of the 3 required pods of gang ns/job fit; 0/2 nodes are available for pod ns/job-0: "
            "2 Insufficient cpu."
        )

    def test_preferred_level_is_tried_within_the_required_level(self) -> None:
        rule = TopologyRule(required=(ZONE,), preferred=RACK)
        world = Network().rack("a", 2, "z1").rack("b", 1, "z1").rack("c", 1, "z2").rack("d", 1, "z2")
        world.close("job", 3, rule).run()
        assert world.racks("job") == {"a", "b"}

    def test_level_name_of_the_policy_maps_to_its_label(self) -> None:
        world = Network(AWARE)
        for number in range(4):
            world.node(f"n{number}", cpu=4, labels={"net/leaf": f"l{number // 2}"})
        world.close("job", 2, TopologyRule(required=("leaf",))).close("big", 3, TopologyRule(required=("leaf",)))
        world.run()
        assert len(world.placed("job")) == 2
        assert "2 domains of net/leaf" in world.why("big").message


class TestHyperNodes:
    def network(self) -> Network:
        world = Network().rack("a", 2).rack("b", 2).rack("c", 3).rack("d", 1)
        world.hypernode("ra", 1, "^a").hypernode("rb", 1, "^b").hypernode("rc", 1, "^c").hypernode("rd", 1, "^d")
        return world.hypernode("s1", 2, "+ra", "+rb").hypernode("s2", 2, "+rc", "+rd", tier_name="spine")

    def tiers(self, highest: int | None = None, name: str = "") -> TopologyRule:
        return TopologyRule(hypernodes=True, highest_tier=highest, highest_tier_name=name)

    def test_lowest_tier_that_fits_is_used(self) -> None:
        world = self.network().close("two", 2, self.tiers(2)).run()
        assert world.racks("two") == {"a"}
        assert self.network().close("four", 4, self.tiers(2)).run().racks("four") == {"a", "b"}

    def test_no_tier_above_the_highest_allowed_is_used(self) -> None:
        world = self.network().close("job", 4, self.tiers(1)).run()
        assert world.placed() == []
        assert "only 3 of the 4 required pods of gang ns/job fit in rc (best of 4 domains of tier 1)" in (
            world.why("job").message
        )
        assert world.why("job").change.endswith("or allow a higher tier (networkTopology.highestTierAllowed)")
        world.gang("job", 4, topology=self.tiers(2)).run()
        assert world.racks("job") == {"a", "b"}

    def test_highest_tier_can_be_given_by_name(self) -> None:
        assert self.network().close("job", 4, self.tiers(name="spine")).run().racks("job") == {"a", "b"}

    def test_without_a_highest_tier_any_node_can_be_used(self) -> None:
        assert len(self.network().close("job", 7, self.tiers()).run().placed("job")) == 7

    def test_gang_waits_until_hypernodes_are_known(self) -> None:
        world = Network().rack("a", 2).close("job", 2, self.tiers(1)).run()
        assert "2 node(s) were in no permitted HyperNode: no HyperNode has a tier of at most 1" in (
            world.why("job").message
        )
        world.hypernode("ra", 1, "^a").run()
        assert world.racks("job") == {"a"}


class TestSubgroups:
    def rule(self, size: int, least: int = 0, topology: TopologyRule | None = IN_A_RACK) -> SubgroupRule:
        selector = (Requirement("task", "In", ("worker",)),)
        return SubgroupRule("workers", selector, ("part",), size, least, topology)

    def workers(self, world: Network, parts: str, each: int) -> Network:
        for part in parts:
            labels = (("part", part), ("task", "worker"))
            world.pods(f"w{part}", each, gang="job", cpu=4, more={"labels": labels})
        return world

    def test_each_subgroup_is_placed_in_its_own_rack(self) -> None:
        world = Network().rack("a", 2).rack("b", 2).rack("c", 1)
        world.gang("job", 4, subgroups=(self.rule(2, 2),))
        self.workers(world, "xy", 2).run()
        assert (world.racks("wx"), world.racks("wy")) == ({"a"}, {"b"})

    def test_subgroups_stay_inside_the_domain_of_the_whole_gang(self) -> None:
        world = Network().rack("a", 2, "z1").rack("b", 2, "z2").rack("c", 2, "z2")
        world.gang("job", 4, topology=TopologyRule.by_label(ZONE), subgroups=(self.rule(2, 2),))
        self.workers(world, "xy", 2).run()
        assert {*world.racks("wx"), *world.racks("wy")} == {"b", "c"}

    def test_subgroup_starts_whole_or_not_at_all(self) -> None:
        world = Network().rack("a", 3).rack("b", 1)
        world.gang("job", 2, subgroups=(self.rule(2),))
        self.workers(world, "xy", 2).run()
        assert (len(world.placed("wx")), world.placed("wy")) == (2, [])
        assert "fit in" not in world.why_pod("wy-0").message
        assert "0/1 nodes in" in world.why_pod("wy-0").message or "0/3 nodes in" in world.why_pod("wy-0").message

    def test_fewer_subgroups_than_needed_hold_the_gang(self) -> None:
        world = Network().rack("a", 2).rack("b", 1)
        world.gang("job", 2, subgroups=(self.rule(2, 2),))
        self.workers(world, "xy", 2).run()
        assert world.placed() == []
        assert world.why("job").message.startswith(
            "only 1 of the 2 required pods of subgroup workers/y of gang ns/job fit in b (best of 2 domains"
        )
        world.rack("b", 2).run()
        assert len(world.placed()) == 4

    def test_members_outside_of_subgroups_are_placed_anywhere(self) -> None:
        world = Network().rack("a", 2).rack("b", 1)
        world.gang("job", 3, subgroups=(self.rule(2, 1),)).pod("master", gang="job", cpu=4)
        self.workers(world, "x", 2).run()
        assert (world.racks("wx"), world.where("master")) == ({"a"}, "b1")

    def test_members_beyond_the_size_of_a_subgroup_start_singly_in_its_domain(self) -> None:
        world = Network().rack("a", 3).rack("b", 3)
        world.gang("job", 2, subgroups=(self.rule(2, 1),))
        self.workers(world, "x", 4).run()
        assert (len(world.placed("wx")), len(world.racks("wx"))) == (3, 1)

    def test_verdict_names_a_subgroup_with_too_few_members(self) -> None:
        world = Network().rack("a", 8)
        world.gang("job", 2, subgroups=(self.rule(2, 1),))
        self.workers(world, "x", 2)
        self.workers(world, "y", 1).run()
        assert world.waiting() == ["wy-0"]
        assert world.why_pod("wy-0").message == (
            "only 1 of the 2 required pods of subgroup workers/y of gang ns/job exist"
        )

    def test_lost_member_is_replaced_in_the_rack_of_its_subgroup(self) -> None:
        world = Network().rack("a", 2).rack("b", 2)
        world.gang("job", 4, subgroups=(self.rule(2, 2),))
        self.workers(world, "xy", 2).run()
        racks = world.racks("wy")
        labels = (("part", "y"), ("task", "worker"))
        world.gone("wy-0").pod("wy-9", gang="job", cpu=4, more={"labels": labels}).run()
        assert world.racks("wy") == racks
        assert len(world.placed()) == 4

    def test_gang_waits_for_its_subgroups_although_its_minimum_is_met(self) -> None:
        world = Network().rack("a", 8)
        world.gang("job", 2, subgroups=(self.rule(4),))
        self.workers(world, "x", 3).run()
        assert world.placed() == []
        assert world.why("job").message == (
            "only 3 of the 4 required pods of subgroup workers/x of gang ns/job exist"
        )
        labels = (("part", "x"), ("task", "worker"))
        world.pod("wx-9", gang="job", cpu=4, more={"labels": labels}).run()
        assert len(world.placed()) == 4

    def test_verdict_names_missing_subgroups(self) -> None:
        world = Network().rack("a", 8)
        world.gang("job", 2, subgroups=(self.rule(2, 2),)).pods("loose", 4, gang="job", cpu=1)
        self.workers(world, "x", 2).run()
        assert world.placed() == []
        assert (
            world.why("job").message == "only 1 of the 2 required subgroups workers of gang ns/job have enough pods"
        )
        assert world.why("job").change == (
            "create 2 more pods of another subgroup workers, or lower minSubGroups to 1"
        )

    def test_members_beyond_the_size_of_a_subgroup_start_where_the_minimum_needs_them(self) -> None:
        world = Network().rack("a", 2).rack("b", 4)
        world.gang("job", 3, subgroups=(self.rule(2, 1),))
        self.workers(world, "x", 3).run()
        assert (len(world.placed()), world.racks()) == (3, {"b"})

    def test_surplus_members_of_a_whole_subgroup_count_for_the_minimum(self) -> None:
        world = Network().rack("a", 4).rack("b", 4)
        world.gang("job", 2, subgroups=(self.rule(2, 1),))
        self.workers(world, "x", 2).run()
        world.gang("job", 3, subgroups=(self.rule(2, 1),))
        labels = (("part", "x"), ("task", "worker"))
        world.pod("wx-9", gang="job", cpu=4, more={"labels": labels}).run()
        assert (len(world.placed()), len(world.racks())) == (3, 1)
        assert world.content("job")


class TestEvictions:
    POLICY = """
actions: "enqueue, allocate, preempt, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]}]
"""

    def filled(self, *racks: tuple[str, int, int]) -> Network:
        """Racks (name, nodes, priority of the pod that fills each node)."""
        world = Network(self.POLICY)
        for name, nodes, priority in racks:
            world.rack(name, nodes)
            for number in range(1, nodes + 1):
                world.pod(f"{name}-low{number}", cpu=4, node=f"{name}{number}", priority=priority)
        return world

    def urgent(self, world: Network, members: int) -> Network:
        world.gang("job", members, topology=IN_A_RACK)
        return world.pods("job", members, gang="job", cpu=4, priority=100)

    def test_pods_of_a_rack_that_fits_the_whole_gang_are_evicted(self) -> None:
        world = self.urgent(self.filled(("a", 2, 0), ("b", 3, 0)), 3).run()
        assert sorted(world.evicted) == ["b-low1", "b-low2", "b-low3"]
        assert world.racks("job") == {"b"}

    def test_of_two_racks_the_one_with_the_cheaper_victims_is_chosen(self) -> None:
        world = self.urgent(self.filled(("a", 2, 50), ("b", 2, 10), ("c", 2, 60)), 2).run()
        assert sorted(world.evicted) == ["b-low1", "b-low2"]

    def test_only_the_missing_room_is_freed_where_half_the_gang_fits(self) -> None:
        world = self.filled(("a", 2, 0), ("b", 2, 0)).gone("b-low1")
        world = self.urgent(world, 2).run()
        assert (world.evicted, world.racks("job")) == (["b-low2"], {"b"})

    def test_no_pod_is_evicted_if_no_rack_would_fit_the_gang(self) -> None:
        world = self.urgent(self.filled(("a", 2, 0), ("b", 2, 0)), 3).run()
        assert world.evicted == []
        assert "only 2 of the 3 required pods of gang ns/job fit" not in world.why("job").message
        assert world.why("job").change

    def test_running_members_leave_one_rack_to_search_for_victims(self) -> None:
        world = self.filled(("a", 3, 50), ("b", 3, 0)).gone("a-low1")
        world.gang("job", 3, topology=IN_A_RACK).pod("job-0", gang="job", cpu=4, node="a1", priority=100)
        world.pods("job-more", 2, gang="job", cpu=4, priority=100).run()
        assert sorted(world.evicted) == ["a-low2", "a-low3"]
        assert world.racks("job") == {"a"}

    def test_surplus_member_preempts_in_its_rack_only(self) -> None:
        world = self.filled(("a", 2, 50), ("b", 2, 0)).gone("a-low1")
        world.gang("job", 1, topology=IN_A_RACK).pod("job-0", gang="job", cpu=4, node="a1", priority=100)
        world.pod("job-1", gang="job", cpu=4, priority=100).run()
        assert (world.evicted, world.where("job-1")) in ((["a-low2"], "a2"), ([], ""))


class TestPodsWithoutATopology:
    POLICY = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: nodeorder}]
- plugins:
  - {name: network-topology-aware, arguments: {weight: 10%s}}
"""

    def world(self, more: str = "") -> Network:
        world = Network(self.POLICY % more).rack("a", 3).rack("b", 3)
        return world.hypernode("ra", 1, "^a").hypernode("rb", 1, "^b")

    def test_pods_without_a_topology_fill_one_domain_before_the_next(self) -> None:
        world = self.world().pod("first", cpu=1, node="b1").pods("p", 9, cpu=1).run()
        assert world.racks("p") == {"b"}
        assert max(world.spread("p").values()) < 4  # within it they are spread, as nodeorder says
        assert world.pods("q", 4, cpu=1).run().racks("q") == {"a", "b"}

    def test_copies_of_one_class_are_placed_as_one_by_one(self) -> None:
        at_once = self.world().pods("p", 8, cpu=1).run()
        singly = self.world()
        for number in range(8):
            singly.pod(f"p-{number}", cpu=1).run()
        assert [at_once.where(f"p-{n}") for n in range(8)] == [singly.where(f"p-{n}") for n in range(8)]

    def test_pods_are_not_packed_by_domain_if_the_policy_says_so(self) -> None:
        world = self.world(", hypernode.binpack.normal-pod.enable: false")
        assert world.pods("p", 6, cpu=1).run().racks("p") == {"a", "b"}

    def test_stated_levels_replace_hypernodes(self) -> None:
        policy = self.POLICY % ", levels: [topology.kubernetes.io/rack]"
        world = Network(policy).rack("a", 3).rack("b", 3).pod("first", cpu=1, node="b1")
        assert world.pods("p", 6, cpu=1).run().racks("p") == {"b"}


class TestFewDomainsBelow:
    def test_gang_that_needs_two_racks_fills_one_before_the_next(self) -> None:
        world = Network().rack("a", 3, "z").rack("b", 4, "z").rack("c", 3, "z")
        world.close("job", 5, TopologyRule(required=(ZONE,), preferred=RACK)).run()
        assert sorted(sum(1 for n in world.placed() if world.where(n).startswith(r)) for r in "abc") == [0, 1, 4]

    def test_remainder_is_placed_where_it_fits_tightest(self) -> None:
        world = Network().rack("a", 4, "z").rack("b", 3, "z").rack("c", 2, "z")
        world.close("job", 6, TopologyRule(required=(ZONE,), preferred=RACK)).run()
        assert world.racks() == {"a", "c"}

    def test_domains_are_filled_in_turn_on_every_level_between(self) -> None:
        policy = AWARE.replace("topology.kubernetes.io/rack]", "net/block, topology.kubernetes.io/rack]")
        world = Network(policy)
        for rack, block, zone in (("a", "x", "z"), ("b", "x", "z"), ("c", "y", "z"), ("d", "y", "z")):
            world.rack(rack, 2, zone, labels={"net/block": block})
        world.pod("other", cpu=4, node="a1").close("job", 5, TopologyRule.by_label(ZONE)).run()
        assert sum(1 for n in world.placed("job") if world.where(n)[0] in "cd") == 4
