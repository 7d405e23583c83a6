"""Measured load of nodes, by node row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from phalanx.cluster.resource_space import CPU_COLUMN, MEMORY_COLUMN, BoolArray, IntArray
from phalanx.model.node_load import NodeLoad

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

_WHOLE = 100


class LoadTable:
    """CPU (row 0) and memory (row 1) of each node: `percent` int64[2, N] is the use relative to its resources,
    rounded up, and `known` bool[N] marks measured rows. `requested` int64[2, N] are the requests of its pods at
    the measurement: later pods are not included."""

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.known: BoolArray = np.zeros(0, dtype=np.bool_)
        self.percent: IntArray = np.zeros((2, 0), dtype=np.int64)
        self.requested: IntArray = np.zeros((2, 0), dtype=np.int64)
        self.ensure()

    def ensure(self) -> None:
        """Extend the load arrays to all node rows."""
        missing = self._nodes.capacity - len(self.known)
        if missing > 0:
            self.known = np.pad(self.known, (0, missing))
            self.percent = np.pad(self.percent, ((0, 0), (0, missing)))
            self.requested = np.pad(self.requested, ((0, 0), (0, missing)))

    def learn(self, loads: Iterable[NodeLoad], gone: Iterable[str]) -> bool:
        """Store measured loads of nodes, and remove those of nodes without measurements. Return whether any pod can
        fit now that did not before."""
        self.ensure()
        rows = {load.node: self._nodes.row(load.node) for load in loads}
        easier = False
        for load in loads:
            row = rows[load.node]
            if row >= 0:
                easier |= self._set(row, load)
        for name in gone:
            row = self._nodes.row(name)
            if row >= 0 and self.known[row]:
                self.forget(row)
                self._nodes.relabelled.note(row)
                self._nodes.changes.note(row)
                easier = True
        return easier

    def forget(self, row: int) -> None:
        if row < len(self.known):
            self.known[row] = False

    def _set(self, row: int, load: NodeLoad) -> bool:
        nodes = self._nodes
        offered = nodes.allocatable[[CPU_COLUMN, MEMORY_COLUMN], row]
        used = np.array([load.cpu, load.memory], dtype=np.int64)
        percent = np.where(offered > 0, -(-used * _WHOLE // offered.clip(1)), 0)
        last, new = self.percent[:, row].copy(), not self.known[row]
        self.known[row] = True
        self.percent[:, row] = percent
        self.requested[:, row] = nodes.used[[CPU_COLUMN, MEMORY_COLUMN], row]
        if new or (percent != last).any():
            nodes.relabelled.note(row)
        nodes.changes.note(row)
        return bool(new or (percent < last).any())
