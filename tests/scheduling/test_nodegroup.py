"""Queues restricted to groups of nodes: the rules of Volcano's plugin nodegroup."""

from __future__ import annotations

from typing import Self

import pytest

from phalanx.cluster.allocators.node_groups import NODE_GROUPS, NodeGroups
from phalanx.model.pod import PodClass
from phalanx.model.pools import POOL_LABEL, PoolRule

from .scenario import Scenario, amounts

GROUPS = ("a", "b", "c")


class Pools(Scenario):
    """One node per group, and one without a group."""

    def __init__(self, hierarchical: bool = False, nodes: bool = True, **arguments: object) -> None:
        listed = ", ".join(f"{key}: {str(value).lower()}" for key, value in arguments.items())
        switch = ", enableHierarchy: true" if hierarchical else ""
        super().__init__(
            f"""
actions: "enqueue, allocate, preempt, backfill"
tiers: [{{plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}, {{name: predicates}},
  {{name: nodegroup{switch}, arguments: {{{listed}}}}}]}}]
"""
        )
        if nodes:
            for group in GROUPS:
                self.grouped(f"in-{group}", group)
            self.node("free")

    def grouped(self, name: str, group: str, **offered: object) -> Self:
        return self.node(name, labels={POOL_LABEL: group}, **offered)  # type: ignore[arg-type]

    def goes(self, rule: PoolRule | None, **fields: object) -> Self:
        self.pod("p", pod_class=PodClass(pool=rule), **({"cpu": 1} | fields))  # type: ignore[arg-type]
        return self.run()

    def ways(self, rule: PoolRule | None) -> list[str]:
        """Return all nodes that a pod can use, best first."""
        found = []
        for number in range(len(GROUPS) + 1):
            self.pod(f"p{number}", pod_class=PodClass(pool=rule), cpu=64)
            self.run()
            if not self.where(f"p{number}"):
                break
            found.append(self.where(f"p{number}"))
        return found


def test_required_groups_score_above_preferred_and_avoided_ones_last() -> None:
    s = Pools()
    assert s.ways(PoolRule(required=("b",), preferred=("c",), avoided=("a",))) == ["in-b", "in-c", "in-a"]


def test_group_outside_of_the_rule_is_not_used() -> None:
    s = Pools()
    assert s.ways(PoolRule(preferred=("c",))) == ["in-c"]
    message = s.why_pod("p1").message
    assert "1 node(s) were in no node group" in message
    assert "2 node(s) were in a node group that the queue does not allow" in message


def test_verdict_of_a_pod_without_a_node_names_the_groups_that_would_fit() -> None:
    rule = PoolRule(required=("gold", "silver"), forbidden=("silver",))
    s = Pools().goes(rule)
    labelled = f"label nodes {POOL_LABEL} with a node group of the queue (gold) (makes 3 nodes eligible)"
    assert s.why_pod("p").change == labelled
    assert s.grouped("new", "gold").run().where("p") == "new"
    named = "list node groups in spec.affinity.nodeGroupAffinity of the queue"
    assert Pools().goes(None).why_pod("p").change == f"{named} (makes 3 nodes eligible)"


@pytest.mark.parametrize("also", ["required", "preferred", "avoided"])
def test_forbidden_group_stays_forbidden_whatever_the_preference(also: str) -> None:
    s = Pools()
    assert s.ways(PoolRule(forbidden=("a",), **{also: ("a", "b")})) == ["in-b"]  # type: ignore[arg-type]


def test_queue_that_only_forbids_groups_can_use_none() -> None:
    assert Pools().ways(PoolRule(forbidden=("a",))) == []


def test_preferred_groups_can_be_ordered() -> None:
    rule = PoolRule(preferred=("c", "a", "b"))
    assert Pools(enablePreferredOrder=True).ways(rule) == ["in-c", "in-a", "in-b"]
    assert Pools().ways(rule) == ["in-a", "in-b", "in-c"]


def test_strict_policy_places_no_pod_of_a_queue_without_a_rule() -> None:
    s = Pools()
    assert s.ways(None) == []
    message = s.why_pod("p0").message
    assert "1 node(s) were in no node group" in message
    assert "3 node(s) were in a node group, but the queue names none" in message


def test_pods_of_a_queue_without_a_rule_use_nodes_without_a_group() -> None:
    assert Pools(strict=False).ways(None) == ["free"]
    assert Pools(strict=False).ways(PoolRule()) == ["free"]


def test_rules_of_parents_apply_with_the_hierarchy_only() -> None:
    rule = PoolRule(required=("b",), inherited=True)
    assert Pools(hierarchical=True).ways(rule) == ["in-b"]
    assert Pools(strict=False).ways(rule) == ["free"]


class TestLimits:
    def queue(self, **limits: dict[str, object]) -> PoolRule:
        stated = tuple((group, amounts(**amount)) for group, amount in sorted(limits.items()))
        return PoolRule(preferred=("a", "b"), queue="q", limits=stated)

    def test_queue_overflows_to_the_next_group_at_its_limit(self) -> None:
        s = Pools(nodes=False, enablePreferredOrder=True)
        for name, group in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            s.grouped(name, group)
        rule = PodClass(pool=self.queue(a={"cpu": 5}))
        s.gang("g", 4, created=1).pods("g", 4, gang="g", pod_class=rule, cpu=2)
        s.run()
        assert s.spread() == {"a1": 2, "b1": 2}

    def test_all_nodes_of_a_group_count_together(self) -> None:
        s = Pools(nodes=False)
        s.grouped("a1", "a", cpu=4).grouped("a2", "a", cpu=4)
        rule = PodClass(pool=PoolRule(required=("a",), queue="q", limits=(("a", amounts(cpu=6)),)))
        s.pods("p", 4, pod_class=rule, cpu=2).run()
        assert len(s.placed()) == 3
        assert "node(s) were in a node group in which the queue has reached its limit" in s.why_pod("p-3").message
        s.finishes("p-0").run()
        assert len(s.waiting()) == 0

    def test_only_named_resources_of_a_group_are_limited(self) -> None:
        s = Pools(nodes=False).grouped("a1", "a")
        rule = PodClass(pool=self.queue(a={"memory": "1Gi"}))
        s.pods("p", 5, pod_class=rule, cpu=2).run()
        assert s.waiting() == []

    def test_node_that_changes_its_group_moves_the_usage_of_its_pods(self) -> None:
        s = Pools(nodes=False).grouped("n1", "a").grouped("n2", "b")
        rule = PodClass(pool=self.queue(a={"cpu": 2}, b={"cpu": 2}))
        s.pod("one", pod_class=rule, cpu=2, node="n1")
        groups = s.state.nodes.allocators[NODE_GROUPS]
        assert isinstance(groups, NodeGroups)
        assert groups.held("q", "a") == {"cpu": 2000, "pods": 1}
        s.grouped("n1", "b")
        assert (groups.held("q", "a"), groups.held("q", "b")) == ({}, {"cpu": 2000, "pods": 1})
        s.pod("two", pod_class=rule, cpu=2).run()
        assert s.waiting() == ["two"]
        s.gone("one").run()
        assert s.waiting() == []

    def test_preemption_makes_room_within_the_group(self) -> None:
        s = Pools(nodes=False).grouped("a1", "a").grouped("a2", "a")
        rule = PodClass(pool=PoolRule(required=("a",), queue="q", limits=(("a", amounts(cpu=4)),)))
        s.pods("low", 2, pod_class=rule, cpu=2).run()
        s.pod("high", pod_class=rule, cpu=2, priority=10)
        s.settle()
        assert len(s.evicted) == 1
        assert s.where("high")
