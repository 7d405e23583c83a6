"""Hierarchical dominant resource fairness (Bhattacharya et al., "Hierarchical Scheduling for Diverse Datacenter
Workloads", SoCC 2013), with the rules of Volcano's drf plugin (drf.go, design/hdrf.md there).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

ONE = 2**128
"""Whole of a resource.

Shares are integer multiples of 1 / ONE, rounded down: of two leaves the one with the truly smaller share comes
first, and equal histories have equal shares.
"""

Level = tuple[bool, int]
"""(saturated, share / weight): the sort key of a node among its siblings, smaller first."""


class HdrfNode:
    """Node of the queue hierarchy. `parts` is resource -> share of the cluster that counts for it, in 1 / ONE.

    A leaf is saturated if it requests nothing more, or requests an exhausted resource; an inner node if all its
    children are. `share` is the largest part.
    """

    __slots__ = ("asked", "children", "held", "name", "parent", "parts", "saturated", "share", "weight")

    def __init__(self, name: str, weight: int = 1, parent: HdrfNode | None = None) -> None:
        self.name = name
        self.weight = max(1, weight)
        self.parent = parent
        self.children: dict[str, HdrfNode] = {}
        self.held: Mapping[str, int] = {}
        self.asked: Mapping[str, int] = {}
        self.parts: dict[str, int] = {}
        self.share = 0
        self.saturated = True

    def __repr__(self) -> str:
        return f"Node({'/'.join(self.path())}, share={self.share / ONE:.3f}, saturated={self.saturated})"

    def path(self) -> list[str]:
        return [*(self.parent.path() if self.parent is not None else ()), self.name]


class Hierarchy:
    """Tree of queues for hierarchical dominant resource fairness: orders its leaves by their shares. `total` is the
    cluster's amounts.

    Leaves are set all at once (`set`, then `compute`) or one by one (`update`, in depth x siblings steps).
    """

    def __init__(self, total: Mapping[str, int]) -> None:
        self._total = {resource: amount for resource, amount in total.items() if amount > 0}
        self._exhausted: frozenset[str] = frozenset()
        self.root = HdrfNode("root")

    def node(self, path: Iterable[tuple[str, int]]) -> HdrfNode:
        """Return the node of the hierarchy at this path of (name, weight) below the root; create missing nodes.

        The first weight of a name is kept.
        """
        node = self.root
        for name, weight in path:
            child = node.children.get(name)
            if child is None:
                child = node.children[name] = HdrfNode(name, weight, node)
            node = child
        return node

    def set(self, leaf: HdrfNode, held: Mapping[str, int], asked: Mapping[str, int]) -> None:
        """Set the usage and requests of a leaf. The nodes above are updated by `compute` or `recompute`."""
        leaf.held, leaf.asked = dict(held), dict(asked)

    def exhaust(self, resources: Iterable[str]) -> None:
        """Set which resources of the cluster are exhausted: leaves that request one are saturated.

        Recompute all nodes if the set has changed.
        """
        exhausted = frozenset(resources)
        if exhausted != self._exhausted:
            self._exhausted = exhausted
            self.compute()

    def compute(self) -> None:
        """Compute the shares of every node of the hierarchy, children first."""
        order = [self.root]
        for node in order:
            order.extend(node.children.values())
        for node in reversed(order):
            self._compute(node)

    def update(self, leaf: HdrfNode, held: Mapping[str, int], asked: Mapping[str, int]) -> None:
        """Set the usage and requests of a leaf and recompute the shares of the nodes above it."""
        self.set(leaf, held, asked)
        self.recompute(leaf)

    def recompute(self, node: HdrfNode | None) -> None:
        while node is not None:
            self._compute(node)
            node = node.parent

    def _compute(self, node: HdrfNode) -> None:
        if node.children:
            self._combine(node)
        else:
            node.parts = {
                resource: amount * ONE // self._total[resource]
                for resource, amount in node.held.items()
                if amount > 0 and resource in self._total
            }
            node.saturated = not node.asked or not self._exhausted.isdisjoint(node.asked)
        node.share = max(node.parts.values(), default=0)

    def _combine(self, node: HdrfNode) -> None:
        """Compute a node's share from its children; unsaturated ones count, by weight, at most as much as the
        smallest of them.

        Volcano scales to the smallest share whatever the weights. Then a node with children of different weights
        seems to have less than it has, and gets more than its own weight permits.
        """
        children = node.children.values()
        growing = [child for child in children if child.share and not child.saturated]
        smallest = min(growing, key=lambda child: child.share // child.weight, default=node)
        parts: dict[str, int] = {}
        for child in children:
            numerator, denominator = 1, 1
            if child.share and not child.saturated:
                numerator, denominator = smallest.share * child.weight, child.share * smallest.weight
            for resource, part in child.parts.items():
                parts[resource] = parts.get(resource, 0) + part * numerator // denominator
        node.parts = parts
        node.saturated = all(child.saturated for child in children)


def turn(node: HdrfNode) -> tuple[Level, ...]:
    """Return the sort key of a node among all of the hierarchy: level by level from below the root, the smallest
    share first, saturated nodes last."""
    levels: list[Level] = []
    current: HdrfNode | None = node
    while current is not None and current.parent is not None:
        levels.append((current.saturated, current.share // current.weight))
        current = current.parent
    return tuple(reversed(levels))


def first(leaves: Sequence[HdrfNode]) -> HdrfNode:
    """Return the leaf of the hierarchy that is scheduled first; the first of equals."""
    return min(leaves, key=turn)
