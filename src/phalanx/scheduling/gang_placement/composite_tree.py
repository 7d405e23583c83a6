"""A group of groups as the placement sees it: a tree of quorums."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.composites import Composites
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import GangKey
from phalanx.model.topology import TopologyRule


class CompositeTree:
    """`least` of the children must hold, or nothing of the tree is placed; with 0 each stands for itself.

    A child holds when its own quorum does: a gang's that of its members, a tree's that of its children. Those
    that hold already count. `children` are in the order in which they are tried; each is placed as a whole or not
    at all, and one that does not fit is passed over. `topology` binds everything below. `key` is the composite's.
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
        """All gangs below, depth first, in the order in which they are tried."""
        for child in self.children:
            if isinstance(child, CompositeTree):
                yield from child.gangs()
            else:
                yield child

    def trees(self) -> Iterator[CompositeTree]:
        """This one and all below it, parents first."""
        yield self
        for child in self.children:
            if isinstance(child, CompositeTree):
                yield from child.trees()


def composite_tree_of(composites: Composites, root: GangKey) -> CompositeTree:
    """The tree of a root that is declared and without fault.

    A composite that has been placed once asks for nothing more while anybody below it is left, as a gang does.
    """
    spec = composites.specs[root]
    below, gangs = composites.children(root)
    found: list[tuple[int, GangKey, CompositeTree | GangRecord]] = [
        (child.created, child.key, composite_tree_of(composites, child.key)) for child in below
    ]
    found += [(gang.spec.created, gang.key, gang) for gang in gangs if gang.spec is not None]
    children = tuple(child for _, _, child in sorted(found, key=lambda entry: entry[:2]))
    whole = CompositeTree(root, spec.min_groups, children, spec.topology)
    if spec.initiated and any(gang.active for gang in whole.gangs()):
        whole.least = 0
    return whole
