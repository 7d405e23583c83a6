"""Network domains as arrays over rows: the proximity of nodes, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from phalanx.cluster.network.hypernodes import HyperNodeTree
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.model.topology import HyperNode, TopologyRule

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

Ids = npt.NDArray[np.intp]

# Labels that commonly define levels; those without nodes are ignored.
USUAL_LEVELS = (
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/rack",
    "cloud.google.com/gce-topology-block",
    "cloud.google.com/gce-topology-subblock",
    "cloud.google.com/gce-topology-host",
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
    # Topograph, the widest tier first; the older names of the same levels; the NVLink domain.
    *(f"fabric.topograph.run/tier-{tier}" for tier in range(5, 0, -1)),
    "network.topology.nvidia.com/core",
    "network.topology.nvidia.com/spine",
    "network.topology.nvidia.com/leaf",
    "network.topology.nvidia.com/accelerator",
    "accelerator.topograph.run/domain",
    "nvidia.com/gpu.clique",
    "kubernetes.io/hostname",
)


class Level:
    """One partition of the nodes: `ids[row]` is the number of the row's domain, 0 without one.

    `title` names the level for users (a node label, a tier), `names[number]` a domain. `first[number]` is the
    lowest row of a domain: its oldest node.
    """

    __slots__ = ("count", "first", "ids", "names", "title")

    def __init__(self, title: str, ids: Ids, names: Sequence[str]) -> None:
        self.title = title
        self.ids = ids
        self.names = names
        present, first = np.unique(ids, return_index=True)
        self.first: IntArray = np.full(len(names), len(ids), dtype=np.int64)
        self.first[present] = first
        self.count = int((present > 0).sum())

    def __repr__(self) -> str:
        return f"Level({self.title}, {self.count} domains)"

    def rows(self, number: int) -> BoolArray:
        """Return bool[N]: the node rows in a domain."""
        is_member: BoolArray = self.ids == number
        return is_member

    def shared(self, rows: Sequence[int]) -> int:
        """Return the domain that contains all the node rows; 0 if there is none."""
        numbers = set(self.ids[list(rows)].tolist())
        return int(numbers.pop()) if len(numbers) == 1 else 0


class Ladder:
    """Levels that a rule permits for the domain of members, the narrowest first.

    `cap` is set if the last one is the widest allowed level (else the last one is the whole cluster). `unknown`
    describes the part of the rule that no node or HyperNode satisfies.
    """

    __slots__ = ("cap", "levels", "unknown")

    def __init__(self, levels: Sequence[Level], cap: bool, unknown: str = "") -> None:
        self.levels = tuple(levels)
        self.cap = cap
        self.unknown = unknown


class Topology:
    """The HyperNodes and the labels of a node table, as levels.

    Repeated queries are cached until nodes or HyperNodes change.
    """

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.hypernodes = HyperNodeTree(nodes)
        self._as_of = (-1, -1, -1)
        self._ladders: dict[tuple[TopologyRule, tuple[str, ...], bool], Ladder] = {}

    def put(self, hypernode: HyperNode) -> bool:
        """Store a HyperNode in the topology. Return whether it differs from the last."""
        return self.hypernodes.put(hypernode)

    def drop(self, name: str) -> bool:
        return self.hypernodes.drop(name)

    @property
    def version(self) -> tuple[int, int, int]:
        """Version of the network domains: equal as long as they are."""
        return (self._nodes.relabelled.end, self._nodes.capacity, self.hypernodes.version)

    @property
    def capacity(self) -> int:
        return self._nodes.capacity

    def ladder(self, rule: TopologyRule, keys: tuple[str, ...] = (), ordered: bool = False) -> Ladder:
        """Return the levels that a topology constraint permits. `keys` are the node labels that are levels, the
        widest first if `ordered`; else the one with fewer domains is the wider."""
        if self._as_of != self.version:
            self._as_of = self.version
            self._ladders.clear()
        key = (rule, keys, ordered)
        ladder = self._ladders.get(key)
        if ladder is None:
            ladder = self._by_tiers(rule) if rule.hypernodes else self._by_labels(rule, keys, ordered)
            self._ladders[key] = ladder
        return ladder

    def everywhere(self) -> Level:
        return Level("cluster", self._nodes.alive.astype(np.intp), ("", "the whole cluster"))

    def _by_tiers(self, rule: TopologyRule) -> Ladder:
        tree = self.hypernodes
        highest = rule.highest_tier
        if rule.highest_tier_name:
            highest = tree.tier_named(rule.highest_tier_name)
            if highest is None:
                return Ladder((), True, f"no HyperNode has the tierName {rule.highest_tier_name}")
        levels = [
            Level(tree.title(tier), tree.ids(tier), tree.names)
            for tier in tree.tiers
            if highest is None or tier <= highest
        ]
        if highest is None:
            return Ladder([*levels, self.everywhere()], False)
        return Ladder(levels, True, "" if levels else f"no HyperNode has a tier of at most {highest}")

    def _by_labels(self, rule: TopologyRule, keys: tuple[str, ...], ordered: bool) -> Ladder:
        labels, capacity = self._nodes.labels, self._nodes.capacity
        for key in rule.required:
            if not labels.column(key).ids.any():
                return Ladder((), True, f"no node has the label {key}")
        outer = self._everywhere_or(rule.required)
        narrower: list[Level] = []
        within = outer
        for key in dict.fromkeys((*keys, *filter(None, [rule.preferred]))):
            if key in rule.required or not labels.column(key).ids.any():
                continue
            level = _refined(within, key, labels.column(key).ids.astype(np.intp), labels.column(key).values)
            if ordered and key in keys:
                within = level
            narrower.append(level)
        if not ordered:
            narrower.sort(key=lambda level: (-level.count, level.title))
        else:
            narrower.reverse()
        assert all(len(level.ids) == capacity for level in narrower)
        useful = [level for level in narrower if level.count > outer.count or not rule.required]
        return Ladder([*useful, outer], bool(rule.required))

    def _everywhere_or(self, required: tuple[str, ...]) -> Level:
        """Return the domains in which each of the required labels has one value."""
        level: Level | None = None
        for key in required:
            column = self._nodes.labels.column(key)
            ids, values = column.ids.astype(np.intp), column.values
            level = Level(key, ids, values) if level is None else _refined(level, key, ids, values)
        return level if level is not None else self.everywhere()


def _refined(outer: Level, key: str, ids: Ids, values: Sequence[str]) -> Level:
    """Return the domains of a level divided by a label: equal values in two domains are distinct."""
    inside = (ids > 0) & (outer.ids > 0)
    pairs = np.where(inside, outer.ids * len(values) + ids, 0)
    distinct, numbers = np.unique(pairs, return_inverse=True)
    if distinct[0] != 0:
        distinct, numbers = np.concatenate([[0], distinct]), numbers + 1
    parts = [""] * len(distinct)
    for number, pair in enumerate(distinct.tolist()):
        if pair:
            outer_number, value_number = divmod(pair, len(values))
            parts[number] = (
                values[value_number]
                if outer.title == "cluster"
                else f"{outer.names[outer_number]}/{values[value_number]}"
            )
    return Level(key, numbers.reshape(ids.shape).astype(np.intp), parts)
