"""`rest`: nodes whose kubelet has refused a pod a moment ago get none. Part of every policy."""

from __future__ import annotations

import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.labels import Rows
from phalanx.cluster.nodes import NO_ROW, NodeTable
from phalanx.cluster.resource_space import BoolArray
from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.plugin import Plugin
from phalanx.scheduling.session.node_backoff import NodeBackoff


class Rest(Plugin):
    """`rests` is the scheduler's: it outlasts a change of the policy."""

    name = "rest"

    def __init__(self, arguments: Arguments) -> None:
        self.rests = NodeBackoff()
        self._resting: tuple[str, ...] = ()

    def season(self, now: float) -> tuple[str, ...]:
        self._resting = self.rests.resting(now)
        return self._resting

    def filter(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        if not self._resting:
            return np.ones(nodes.alive[rows].shape, dtype=np.bool_)
        awake = np.ones(nodes.capacity, dtype=np.bool_)
        for name in self._resting:
            row = nodes.row(name)
            if row != NO_ROW:
                awake[row] = False
        found: BoolArray = awake[rows]
        return found

    def explain(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        if not self._resting:
            return []
        return [("node(s) refused a pod a moment ago", ~self.filter(cls, nodes, rows))]
