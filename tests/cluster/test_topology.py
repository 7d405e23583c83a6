"""Domains as arrays: the level of each node while nodes, labels and HyperNodes change."""

from __future__ import annotations

import random

import pytest

from phalanx.cluster.network.topology import Ladder, Topology
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.resource_space import ResourceSpace
from phalanx.model.node import Node
from phalanx.model.selectors import Requirement
from phalanx.model.topology import HyperNode, HyperNodeMember, TopologyRule

RACK, ZONE, HOST = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone", "kubernetes.io/hostname"
TIERS = TopologyRule(hypernodes=True)


class Board:
    """A node table with its topology."""

    def __init__(self) -> None:
        self.nodes = NodeTable(ResourceSpace())
        self.topology = Topology(self.nodes)

    def node(self, name: str, **labels: str) -> Board:
        keys = {"rack": RACK, "zone": ZONE, "host": HOST}
        stated = tuple(sorted((keys.get(key, key), value) for key, value in labels.items()))
        self.nodes.upsert(Node(name, labels=stated))
        return self

    def hypernode(self, name: str, tier: int, *members: str | HyperNodeMember, tier_name: str = "") -> Board:
        """Add a HyperNode. A member written as `+name` is a HyperNode too."""
        read = tuple(
            HyperNodeMember(each.startswith("+"), each.lstrip("+")) if isinstance(each, str) else each
            for each in members
        )
        self.topology.put(HyperNode(name, tier, tier_name, read))
        return self

    def domains(self, ladder: Ladder) -> dict[str, dict[str, str]]:
        """Return the nodes of each domain of each level."""
        found: dict[str, dict[str, str]] = {}
        for level in ladder.levels:
            parts = found.setdefault(level.title, {})
            for name in sorted(filter(None, self.nodes.names)):
                number = level.ids[self.nodes.row(name)]
                if number:
                    parts[level.names[number]] = f"{parts.get(level.names[number], '')} {name}".strip()
        return found

    def tiers(self, rule: TopologyRule = TIERS) -> dict[str, dict[str, str]]:
        return self.domains(self.topology.ladder(rule))

    def faults(self) -> list[str]:
        return [f"{fault.hypernode}: {fault.message}" for fault in self.topology.hypernodes.faults()]


def four_nodes() -> Board:
    board = Board()
    for name in "abcd":
        board.node(name)
    return board


def test_hypernodes_divide_the_nodes_tier_by_tier_below_the_cluster() -> None:
    board = four_nodes()
    board.hypernode("r1", 1, "a", "b").hypernode("r2", 1, "c").hypernode("s1", 2, "+r1", "+r2")
    assert board.tiers() == {
        "tier 1": {"r1": "a b", "r2": "c"},
        "tier 2": {"s1": "a b c"},
        "cluster": {"the whole cluster": "a b c d"},
    }


def test_members_can_be_selected_by_pattern_or_by_labels() -> None:
    board = Board().node("gpu-1", pool="x").node("gpu-2").node("cpu-1", pool="x")
    board.hypernode("gpus", 1, HyperNodeMember(pattern="^gpu-"))
    board.hypernode("pool", 2, HyperNodeMember(labels=(Requirement("pool", "In", ("x",)),)))
    board.hypernode("top", 3, HyperNodeMember(nested=True, pattern="^(gpus|pool|top)$"))
    assert board.tiers()["tier 1"] == {"gpus": "gpu-1 gpu-2"}
    assert board.tiers()["tier 2"] == {"pool": "cpu-1"}
    assert board.tiers()["tier 3"] == {"top": "cpu-1 gpu-1 gpu-2"}
    assert board.faults() == [
        "pool: node gpu-1 is a member of HyperNode gpus as well, which takes precedence; "
        "let each node be a member of one HyperNode of the lowest tier"
    ]


def test_tier_with_a_name_is_shown_by_its_name() -> None:
    board = four_nodes().hypernode("r1", 1, "a", tier_name="rack").hypernode("s1", 4, "+r1", tier_name="spine")
    assert list(board.tiers()) == ["tier 1 (rack)", "tier 4 (spine)", "cluster"]
    named = board.topology.ladder(TopologyRule(hypernodes=True, highest_tier_name="rack"))
    assert (named.cap, board.domains(named)) == (True, {"tier 1 (rack)": {"r1": "a"}})
    unknown = board.topology.ladder(TopologyRule(hypernodes=True, highest_tier_name="row"))
    assert (unknown.levels, unknown.unknown) == ((), "no HyperNode has the tierName row")
    low = board.topology.ladder(TopologyRule(hypernodes=True, highest_tier=0))
    assert (low.levels, low.unknown) == ((), "no HyperNode has a tier of at most 0")


def test_node_claimed_by_two_siblings_belongs_to_the_first_by_name() -> None:
    board = four_nodes().hypernode("r2", 1, "a", "b").hypernode("r1", 1, "b", "c")
    assert board.tiers()["tier 1"] == {"r1": "b c", "r2": "a"}
    (fault,) = board.faults()
    assert fault.startswith("r2: node b is a member of HyperNode r1 as well")


def test_node_named_by_its_rack_and_by_the_spine_above_is_no_fault() -> None:
    board = four_nodes().hypernode("r1", 1, "a", "b").hypernode("s1", 2, "+r1", "a", "c")
    assert board.tiers()["tier 2"] == {"s1": "a b c"}
    assert board.faults() == []


def test_hypernodes_in_a_cycle_lose_only_the_member_that_is_not_lower() -> None:
    board = four_nodes().hypernode("x", 1, "a", "+y").hypernode("y", 2, "b", "+x").hypernode("z", 1, "c")
    assert board.tiers() == {
        "tier 1": {"x": "a", "z": "c"},
        "tier 2": {"y": "a b"},
        "cluster": {"the whole cluster": "a b c d"},
    }
    assert board.faults() == ["x: HyperNode y (tier 2) cannot be its member: give it a tier below 1"]


def test_hypernode_claimed_by_two_parents_belongs_to_the_closer_one() -> None:
    board = four_nodes().hypernode("r1", 1, "a").hypernode("s1", 2, "+r1").hypernode("s0", 3, "+r1", "+ghost")
    assert board.tiers()["tier 2"] == {"s1": "a"}
    assert "tier 3" not in {level for level, parts in board.tiers().items() if parts}
    assert board.faults() == [
        "s0: HyperNode r1 is a member of HyperNode s1 as well, which takes precedence; "
        "let each HyperNode be a member of one other",
        "s0: there is no HyperNode ghost that can be its member",
    ]


def test_labels_are_levels_and_the_one_with_fewer_domains_is_the_wider() -> None:
    board = Board()
    for number in range(8):
        board.node(f"n{number}", rack=f"r{number // 2}", zone=f"z{number // 4}", host=f"n{number}")
    ladder = board.topology.ladder(TopologyRule(preferred=RACK), (ZONE, RACK, HOST, "nobody/has-it"))
    assert [(level.title, level.count) for level in ladder.levels] == [
        (HOST, 8),
        (RACK, 4),
        (ZONE, 2),
        ("cluster", 1),
    ]
    assert not ladder.cap
    capped = board.topology.ladder(TopologyRule.by_label(RACK), (ZONE, HOST))
    assert [level.title for level in capped.levels] == [HOST, RACK]
    assert capped.cap


def test_racks_of_one_name_in_two_zones_are_two_domains_where_levels_are_ordered() -> None:
    board = Board().node("a", rack="r1", zone="z1").node("b", rack="r1", zone="z2").node("c", rack="r2")
    in_order = board.topology.ladder(TopologyRule(preferred=RACK), (ZONE, RACK), ordered=True)
    assert board.domains(in_order)[RACK] == {"z1/r1": "a", "z2/r1": "b"}
    of_itself = board.topology.ladder(TopologyRule(preferred=RACK), (ZONE, RACK))
    assert board.domains(of_itself)[RACK] == {"r1": "a b", "r2": "c"}
    both = board.topology.ladder(TopologyRule(required=(ZONE, RACK)))
    assert board.domains(both) == {RACK: {"z1/r1": "a", "z2/r1": "b"}}


def test_label_without_nodes_has_no_domain() -> None:
    ladder = four_nodes().topology.ladder(TopologyRule.by_label(RACK))
    assert (ladder.levels, ladder.cap, ladder.unknown) == ((), True, f"no node has the label {RACK}")


def test_first_node_of_a_domain_is_the_first_observed() -> None:
    board = Board().node("z", rack="r2").node("a", rack="r1").node("b", rack="r2")
    (level,) = board.topology.ladder(TopologyRule.by_label(RACK)).levels
    firsts = {level.names[number]: int(level.first[number]) for number in (1, 2)}
    assert firsts == {"r2": board.nodes.row("z"), "r1": board.nodes.row("a")}
    assert level.names[level.shared([board.nodes.row("z"), board.nodes.row("b")])] == "r2"
    assert level.shared([board.nodes.row("z"), board.nodes.row("a")]) == 0


@pytest.mark.parametrize("seed", range(12))
def test_domains_after_any_history_equal_a_rebuilt_topology(seed: int) -> None:
    draw = random.Random(seed)
    board = Board()
    for _ in range(120):
        match draw.randrange(5):
            case 0 | 1:
                name = f"n{draw.randrange(90)}"
                board.node(name, rack=draw.choice("xyz"), pool=draw.choice("pq"))
            case 2 if len(board.nodes):
                board.nodes.remove(draw.choice(sorted(filter(None, board.nodes.names))))
            case 3:
                pool: list[str | HyperNodeMember] = [
                    f"n{draw.randrange(90)}",
                    f"+h{draw.randrange(5)}",
                    HyperNodeMember(pattern=f"{draw.randrange(9)}$"),
                    HyperNodeMember(labels=(Requirement("pool", "In", (draw.choice("pq"),)),)),
                ]
                board.hypernode(f"h{draw.randrange(5)}", draw.randrange(4), *draw.sample(pool, draw.randrange(4)))
            case _:
                board.topology.drop(f"h{draw.randrange(5)}")
        board.tiers()
    anew = Topology(board.nodes)
    for hypernode in board.topology.hypernodes.known():
        anew.put(hypernode)
    for rule in (TIERS, TopologyRule.by_label(RACK), TopologyRule(preferred="pool")):
        assert board.domains(board.topology.ladder(rule)) == board.domains(anew.ladder(rule))
    assert anew.hypernodes.faults() == board.topology.hypernodes.faults()
