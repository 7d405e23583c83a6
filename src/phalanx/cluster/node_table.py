"""The node table: the rows of the nodes, and all data that is stored by row."""

from __future__ import annotations

from phalanx.cluster.affinity.selector_sets import AffinityIndex
from phalanx.cluster.allocators.base import NodeAllocator
from phalanx.cluster.allocators.registry import node_allocators
from phalanx.cluster.maintenance import MaintenanceTable
from phalanx.cluster.network.topology import Topology
from phalanx.cluster.nodes.backoff import NodeBackoff
from phalanx.cluster.nodes.load import LoadTable
from phalanx.cluster.nodes.rows import NO_ROW, NodeRows
from phalanx.cluster.resource_space import ResourceSpace
from phalanx.model.node import Node

__all__ = ["NO_ROW", "NodeTable"]


class NodeTable(NodeRows):
    """Rows of nodes with their data. `allocators` by name track things that pods reserve one by one (each has a
    log of its own), `affinity` tracks the places of pods, `topology` has the network domains, `load` the
    measured use, `maintenance` the times at which nodes are closed, and `backoff` the nodes that rejected pods."""

    def __init__(self, space: ResourceSpace) -> None:
        super().__init__(space)
        self.load = LoadTable(self)
        self.allocators: dict[str, NodeAllocator] = node_allocators(self)
        self.affinity = AffinityIndex(self)
        self.topology = Topology(self)
        self.maintenance = MaintenanceTable(self)
        self.backoff = NodeBackoff()

    def upsert(self, node: Node) -> tuple[int, bool]:
        known = self.row(node.name)
        if known != NO_ROW and self.nodes[known] == node:
            return known, False
        row, more = super().upsert(node)
        for allocator in self.allocators.values():
            allocator.node_added(row)
        return row, more

    def remove(self, name: str) -> int:
        row = super().remove(name)
        self.load.forget(row)
        for allocator in self.allocators.values():
            allocator.node_removed(row)
        return row
