"""Copies of requests that fit the idle amounts of nodes, reserved or not."""

from __future__ import annotations

import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.scheduling.reservations.copy_counts import request_key
from phalanx.scheduling.reservations.window import RowArray

# Number of requests whose copies are cached.
_MOST_REQUESTS = 256
# If a larger part of the rows has changed, a full recount is cheaper.
_REBUILD_PART = 4


class IdleCopies:
    """Number of copies per row by request, kept up to date by the changes of rows."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        # Request -> cursor in the changes of nodes, and int64[N]: copies.
        self._copies: dict[bytes, tuple[int, IntArray]] = {}

    def on(self, pod_class: ClassRecord, rows: BoolArray | RowArray) -> int:
        """Return the number of copies of the class on some rows, given as bool[N] or by number; rows beyond the end
        have none."""
        copies = self._of(pod_class)
        if rows.dtype != np.bool_:
            return int(copies[rows[rows < len(copies)]].sum())
        return int(copies[: len(rows)][rows[: len(copies)]].sum())

    def _of(self, pod_class: ClassRecord) -> IntArray:
        key, nodes = request_key(pod_class), self._nodes
        cursor, copies = self._copies.get(key, (-1, None))
        end = nodes.changes.end
        if copies is None or len(copies) != nodes.capacity:
            if len(self._copies) >= _MOST_REQUESTS:
                self._copies.clear()
            copies = self._count(pod_class, slice(None))
        elif cursor == end:
            return copies
        else:
            changed = nodes.changes.since(cursor, nodes.capacity // _REBUILD_PART)
            rows: Rows = slice(None) if changed is None else np.array(changed, dtype=np.intp)
            copies[rows] = self._count(pod_class, rows)
        self._copies[key] = (end, copies)
        return copies

    def _count(self, pod_class: ClassRecord, rows: Rows) -> IntArray:
        idle = self._nodes.idle[pod_class.columns][:, rows]
        copies: IntArray = (idle // pod_class.amounts[:, None]).min(axis=0)
        return np.maximum(copies, 0, out=copies)
