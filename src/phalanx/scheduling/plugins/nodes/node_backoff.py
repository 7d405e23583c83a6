"""Plugin `node-backoff`: no pods for nodes whose kubelet rejected a pod recently. The plugin is active in every
policy.
"""

from __future__ import annotations

import numpy as np

from phalanx.cluster.node_table import NO_ROW
from phalanx.plugin import Arguments, BoolArray, ClassRecord, NodeBackoff, NodeTable, Plugin, Rows


class NodeBackoffPlugin(Plugin):
    """Filter that excludes nodes in back-off."""

    name = "node-backoff"

    def __init__(self, arguments: Arguments) -> None:
        self._backoff = NodeBackoff()
        self._backed_off: tuple[str, ...] = ()

    def configure(self, nodes: NodeTable, backoff: NodeBackoff) -> None:
        self._backoff = backoff

    def time_key(self, now: float) -> tuple[str, ...]:
        self._backed_off = self._backoff.backed_off(now)
        return self._backed_off

    def filter(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        if not self._backed_off:
            return np.ones(nodes.alive[rows].shape, dtype=np.bool_)
        available = np.ones(nodes.capacity, dtype=np.bool_)
        for name in self._backed_off:
            row = nodes.row(name)
            if row != NO_ROW:
                available[row] = False
        result: BoolArray = available[rows]
        return result

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        if not self._backed_off:
            return []
        return [("node(s) rejected a pod recently", ~self.filter(pod_class, nodes, rows))]
