"""Faults of HyperNodes: one event each, and another when a fault returns."""

from __future__ import annotations

from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.resource_space import ResourceSpace
from phalanx.model.node import Node
from phalanx.model.topology import HyperNode, HyperNodeMember
from phalanx.status.warnings.network_faults import NetworkFaults


def test_node_in_two_racks_causes_an_event_until_it_is_in_one() -> None:
    nodes = NodeTable(ResourceSpace())
    faults = NetworkFaults(nodes.topology)
    assert faults.new_warnings() == []
    for name in ("r1", "r2"):
        nodes.topology.put(HyperNode(name, 1, members=(HyperNodeMember(name="n1"),)))
    assert faults.new_warnings() == []  # the node does not exist yet
    nodes.upsert(Node("n1"))
    (notice,) = faults.new_warnings()
    assert (notice.reason, notice.about.kind, notice.about.name) == ("HyperNodeConflict", "HyperNode", "r2")
    assert "node n1 is a member of HyperNode r1 as well, which takes precedence" in notice.message
    nodes.upsert(Node("n2"))
    assert faults.new_warnings() == []
    nodes.topology.drop("r2")
    assert faults.new_warnings() == []
    nodes.topology.put(HyperNode("r2", 1, members=(HyperNodeMember(name="n1"),)))
    assert len(faults.new_warnings()) == 1


def test_unreadable_hypernode_causes_no_event_here() -> None:
    nodes = NodeTable(ResourceSpace())
    nodes.topology.put(HyperNode("odd", 1, problem="spec.tier is odd"))
    assert NetworkFaults(nodes.topology).new_warnings() == []
