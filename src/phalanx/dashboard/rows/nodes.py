"""Rows of nodes: offered and free resources."""

from __future__ import annotations

from phalanx.cluster.node_table import NodeTable
from phalanx.dashboard.rows.entries import NodeRow
from phalanx.model.resources import PODS

ZONE = "topology.kubernetes.io/zone"
RACKS = ("topology.kubernetes.io/rack", "topology.phalanx.dev/rack", "rack", "topology.kubernetes.io/block")
_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})


def node_row(nodes: NodeTable, row: int) -> NodeRow | None:
    """Return the row of a node by its index in the state; None if the index has no node."""
    node = nodes.nodes[row]
    if node is None or not nodes.alive[row]:
        return None
    labels = dict(node.labels)
    offered: dict[str, int] = {}
    free: dict[str, int] = {}
    amounts = zip(nodes.space.names, nodes.allocatable[:, row].tolist(), nodes.idle[:, row].tolist(), strict=False)
    for name, has, idle in amounts:
        if has > 0:
            offered[name], free[name] = has, max(0, idle)
    pods = nodes.space.find(PODS)
    return NodeRow(
        id=node.name,
        zone=labels.get(ZONE, ""),
        rack=next((labels[key] for key in RACKS if key in labels), ""),
        offered=offered,
        free=free,
        pods=int(nodes.used[pods, row]) if pods is not None else 0,
        closed="in maintenance" if node.cordoned_by else "cordoned" if node.unschedulable else "",
        taint=next((taint.key for taint in node.taints if taint.effect in _KEEPS_OFF), ""),
    )
