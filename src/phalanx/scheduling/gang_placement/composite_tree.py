"""Composite as a tree of quorums."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.composites import Composites
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import GangKey
from phalanx.model.topology import TopologyRule


class CompositeTree:
    """Node of a composite. At least `least` of the children must be satisfied, or nothing of the tree is placed.
    With 0 the children are independent of each other.

    A child is satisfied if its own quorum is: of a gang by its members, of a tree by its children. Already
    satisfied children count. `children` are in the order of their placement; each is placed as a whole or not at
    all, and a child that does not fit is skipped. `topology` applies to all descendants. `key` is the composite's.
    """

    __slots__ = ("children", "key", "least", "topology")

    def __init__(
        self,
        key: GangKey,
        least: int,
        children: tuple[CompositeTree | GangRecord, ...],
        topology: TopologyRule | None = None,
    ) -> None:
        self.key = key
        self.least = least
        self.children = children
        self.topology = topology

    def __repr__(self) -> str:
        return f"CompositeTree({self.key}, {self.least} of {list(self.children)})"

    def gangs(self) -> Iterator[GangRecord]:
        """Yield all gangs of the tree, depth first, in the order of their placement."""
        for child in self.children:
            if isinstance(child, CompositeTree):
                yield from child.gangs()
            else:
                yield child

    def trees(self) -> Iterator[CompositeTree]:
        """Yield the tree and all its subtrees, parents first."""
        yield self
        for child in self.children:
            if isinstance(child, CompositeTree):
                yield from child.trees()


def composite_tree_of(composites: Composites, root: GangKey) -> CompositeTree:
    """Return the tree of a root that is declared without fault.

    A composite that was placed once has no minimum any more while any gang of it is active, as a gang.
    """
    spec = composites.specs[root]
    subcomposites, gangs = composites.children(root)
    entries: list[tuple[int, GangKey, CompositeTree | GangRecord]] = [
        (child.created, child.key, composite_tree_of(composites, child.key)) for child in subcomposites
    ]
    entries += [(gang.spec.created, gang.key, gang) for gang in gangs if gang.spec is not None]
    children = tuple(child for _, _, child in sorted(entries, key=lambda entry: entry[:2]))
    whole = CompositeTree(root, spec.min_groups, children, spec.topology)
    if spec.initiated and any(gang.active for gang in whole.gangs()):
        whole.least = 0
    return whole
