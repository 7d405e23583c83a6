"""Which nodes carry too much and which have room to spare, by what their pods request."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from phalanx.plugin import BoolArray, IntArray, NodeTable

# Percentages count in hundredths: 12.5 is 1250.
WHOLE = 10_000

Thresholds = Mapping[str, int]
"""resource -> part of what a node offers, in hundredths of a percent."""


class Balance:
    """Nodes seen through two thresholds (descheduler and Volcano, LowNodeUtilization).

    A node is *low* if it takes new pods and carries less than `thresholds` of every resource named there, and
    *high* if it is not low and carries more than `targets` of at least one. Load is what pods request, without
    those that terminate and with what is reserved; a resource that a node does not offer is not looked at there.
    """

    def __init__(self, nodes: NodeTable, thresholds: Thresholds, targets: Thresholds) -> None:
        self._nodes = nodes
        self._targets = targets
        below = nodes.alive & ~nodes.unschedulable
        for name, least in thresholds.items():
            column = nodes.space.find(name)
            if column is not None:
                offered = nodes.allocatable[column]
                below &= (offered == 0) | (self.load(column) * WHOLE < offered * least)
        self.low: BoolArray = below
        above = np.zeros(nodes.capacity, dtype=np.bool_)
        for name in targets:
            above |= self._exceeds(name)
        self.high: BoolArray = above & nodes.alive & ~below

    def load(self, column: int) -> IntArray:
        """int64[N]: what is requested of one resource."""
        nodes = self._nodes
        load: IntArray = nodes.used[column] - nodes.releasing[column] + nodes.reserved[column]
        return load

    def fullest_first(self) -> list[int]:
        """The high rows, by the sum of the loads of what has a target, then in the order of the table."""
        nodes = self._nodes
        total = np.zeros(nodes.capacity)
        for name in self._targets:
            column = nodes.space.find(name)
            if column is not None:
                total += self.load(column) * nodes.inverse[column]
        rows = np.flatnonzero(self.high)
        return [int(row) for row in rows[np.argsort(-total[rows], kind="stable")]]

    def room(self) -> dict[str, int]:
        """resource -> what all low nodes together may carry more, up to their targets."""
        return {
            name: int(np.maximum(self._left(column), 0)[self.low].sum())
            for name in self._targets
            if (column := self._nodes.space.find(name)) is not None
        }

    def takes(self, row: int, amounts: Mapping[str, int]) -> bool:
        """Whether a low node stays within its targets with so much more."""
        return bool(self.low[row]) and all(
            int(self._nodes.allocatable[column, row]) == 0 or amounts.get(name, 0) <= int(self._left(column)[row])
            for name in self._targets
            if (column := self._nodes.space.find(name)) is not None
        )

    def excess(self, row: int) -> list[str]:
        """The resources of which the node carries more than its target now."""
        return [name for name in self._targets if self._exceeds(name)[row]]

    def percent(self, row: int, resource: str) -> int:
        """How much of a resource the node carries now, in whole percent, rounded down."""
        column = self._nodes.space.find(resource)
        assert column is not None
        offered = int(self._nodes.allocatable[column, row])
        return int(self.load(column)[row]) * 100 // offered if offered else 0

    def _left(self, column: int) -> IntArray:
        """int64[N]: what is left up to the target, rounded down; negative where it is exceeded."""
        most = self._nodes.allocatable[column] * self._targets[self._nodes.space.names[column]] // WHOLE
        result: IntArray = most - self.load(column)
        return result

    def _exceeds(self, name: str) -> BoolArray:
        column = self._nodes.space.find(name)
        if column is None:
            return np.zeros(self._nodes.capacity, dtype=np.bool_)
        offered = self._nodes.allocatable[column]
        result: BoolArray = (offered > 0) & (self.load(column) * WHOLE > offered * self._targets[name])
        return result
