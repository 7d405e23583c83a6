"""Largest idle amounts of any node, to exclude demands that fit nowhere without a look at each node."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from phalanx.cluster.node_table import NodeTable

# The exact amounts are computed again once one in this many nodes has changed; until then they only grow.
_RECOUNT_PART = 64


class LargestIdle:
    """Upper bound of the idle amount of any node by resource. Its cost per change does not grow with the nodes."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._amounts: list[int] = []
        self._cursor = -1
        self._changes = 0

    def lacks(self, demand: Iterable[tuple[int, int]]) -> bool:
        """Return whether every node lacks one of the amounts by column; False proves nothing."""
        nodes = self._nodes
        if self._cursor != nodes.changes.end or len(self._amounts) != len(nodes.idle):
            self._update()
        amounts = self._amounts
        return any(amounts[column] < amount for column, amount in demand)

    def _update(self) -> None:
        nodes = self._nodes
        most = nodes.capacity // _RECOUNT_PART - self._changes
        changed = nodes.changes.since(self._cursor, most) if len(self._amounts) == len(nodes.idle) else None
        if changed is None:
            self._amounts, self._changes = nodes.idle.max(axis=1).tolist(), 0
        else:
            largest = nodes.idle.take(np.array(changed, dtype=np.intp), axis=1).max(axis=1)
            self._amounts = list(map(max, self._amounts, largest.tolist()))
            self._changes += len(changed)
        self._cursor = nodes.changes.end
