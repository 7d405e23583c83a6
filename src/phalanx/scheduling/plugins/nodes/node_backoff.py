"""`node-backoff`: nodes whose kubelet has refused a pod a moment ago get none. Part of every policy."""

from __future__ import annotations

import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NO_ROW, NodeTable
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray
from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.node_backoff import NodeBackoff
from phalanx.scheduling.framework.plugin import Plugin


class NodeBackoffPlugin(Plugin):
    """Keeps pods off the nodes that the scheduler leaves alone."""

    name = "node-backoff"

    def __init__(self, arguments: Arguments) -> None:
        self._rests = NodeBackoff()
        self._resting: tuple[str, ...] = ()

    def configure(self, nodes: NodeTable, backoff: NodeBackoff) -> None:
        self._rests = backoff

    def time_key(self, now: float) -> tuple[str, ...]:
        self._resting = self._rests.resting(now)
        return self._resting

    def filter(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        if not self._resting:
            return np.ones(nodes.alive[rows].shape, dtype=np.bool_)
        awake = np.ones(nodes.capacity, dtype=np.bool_)
        for name in self._resting:
            row = nodes.row(name)
            if row != NO_ROW:
                awake[row] = False
        found: BoolArray = awake[rows]
        return found

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        if not self._resting:
            return []
        return [("node(s) refused a pod a moment ago", ~self.filter(pod_class, nodes, rows))]
