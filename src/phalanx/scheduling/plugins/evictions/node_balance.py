"""Balance of nodes by requested resources: overloaded nodes, and nodes with spare room."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from phalanx.plugin import BoolArray, IntArray, NodeTable

# Percentages are in hundredths: 12.5 is 1250.
WHOLE = 10_000

Thresholds = Mapping[str, int]
"""Part of a node's allocatable per resource, in hundredths of a percent."""


class Balance:
    """Nodes classified by two load thresholds (descheduler and Volcano, LowNodeUtilization).

    A node is *low* if it is schedulable and its load is below `thresholds` for every resource named there. It is
    *high* if it is not low and its load exceeds `targets` for at least one. Load is the requests of pods, without
    terminating pods and with reservations. Resources that a node does not offer are ignored there.
    """

    def __init__(self, nodes: NodeTable, thresholds: Thresholds, targets: Thresholds) -> None:
        self._nodes = nodes
        self._targets = targets
        below = nodes.alive & ~nodes.unschedulable
        for name, threshold in thresholds.items():
            column = nodes.space.find(name)
            if column is not None:
                offered = nodes.allocatable[column]
                below &= (offered == 0) | (self.load(column) * WHOLE < offered * threshold)
        self.low: BoolArray = below
        above = np.zeros(nodes.capacity, dtype=np.bool_)
        for name in targets:
            above |= self._exceeds(name)
        self.high: BoolArray = above & nodes.alive & ~below

    def load(self, column: int) -> IntArray:
        """Return int64[N]: the load of each node row by requests for one resource."""
        nodes = self._nodes
        load: IntArray = nodes.used[column] - nodes.releasing[column] + nodes.reserved[column]
        return load

    def fullest_first(self) -> list[int]:
        """Return the overloaded node rows, by the sum of the loads of resources with a target, then in the order of
        the table."""
        nodes = self._nodes
        total = np.zeros(nodes.capacity)
        for name in self._targets:
            column = nodes.space.find(name)
            if column is not None:
                total += self.load(column) * nodes.inverse[column]
        rows = np.flatnonzero(self.high)
        return [int(row) for row in rows[np.argsort(-total[rows], kind="stable")]]

    def room(self) -> dict[str, int]:
        """Return the amounts by resource that all low nodes together can take up to their targets."""
        return {
            name: int(np.maximum(self._room_to_target(column), 0)[self.low].sum())
            for name in self._targets
            if (column := self._nodes.space.find(name)) is not None
        }

    def takes(self, row: int, amounts: Mapping[str, int]) -> bool:
        """Return whether a low node stays within its targets with these further amounts."""
        return bool(self.low[row]) and all(
            int(self._nodes.allocatable[column, row]) == 0
            or amounts.get(name, 0) <= int(self._room_to_target(column)[row])
            for name in self._targets
            if (column := self._nodes.space.find(name)) is not None
        )

    def excess(self, row: int) -> list[str]:
        """Return the resources whose load exceeds the node's target now."""
        return [name for name in self._targets if self._exceeds(name)[row]]

    def percent(self, row: int, resource: str) -> int:
        """Return the load of a resource on the node in whole percent, rounded down."""
        column = self._nodes.space.find(resource)
        assert column is not None
        offered = int(self._nodes.allocatable[column, row])
        return int(self.load(column)[row]) * 100 // offered if offered else 0

    def _room_to_target(self, column: int) -> IntArray:
        """Return int64[N]: the room up to the target, rounded down; negative above the target."""
        target = self._nodes.allocatable[column] * self._targets[self._nodes.space.names[column]] // WHOLE
        result: IntArray = target - self.load(column)
        return result

    def _exceeds(self, name: str) -> BoolArray:
        column = self._nodes.space.find(name)
        if column is None:
            return np.zeros(self._nodes.capacity, dtype=np.bool_)
        offered = self._nodes.allocatable[column]
        result: BoolArray = (offered > 0) & (self.load(column) * WHOLE > offered * self._targets[name])
        return result
