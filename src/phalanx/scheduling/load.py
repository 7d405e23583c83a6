"""How full nodes would be with one or more further copies of a pod: what every amount-based score is made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.labels import Rows
from phalanx.cluster.nodes import NodeTable
from phalanx.cluster.resource_space import CPU_COLUMN, MEMORY_COLUMN, FloatArray, IntArray

_SCORED = slice(CPU_COLUMN, MEMORY_COLUMN + 1)


class Load:
    """The rows' load with the pod placed.

    Without `copies` every array is shaped [rows] and one copy is added. With `copies` int64[J] (1, 2, ... J) they
    are shaped [rows, J] and column j holds the load with `copies[j]` copies. A score written with the operators
    of numpy therefore serves a whole cluster, a handful of changed nodes, and the look ahead over copies alike.
    """

    __slots__ = ("_cls", "_copies", "_inverse", "_nodes", "rows")

    def __init__(self, cls: ClassRecord, nodes: NodeTable, rows: Rows, copies: IntArray | None = None) -> None:
        self._cls = cls
        self._nodes = nodes
        self.rows = rows
        self._copies = copies
        self._inverse: FloatArray | None = None

    @property
    def allocatable(self) -> IntArray:
        """int64[R, rows(, 1)]."""
        found: IntArray = self._nodes.allocatable[:, self.rows]
        return found if self._copies is None else found[..., None]

    def column(self, resource: str) -> int:
        return self._nodes.space.column(resource)

    def fraction(self, column: int) -> FloatArray:
        """The used part of one resource (1.0 = all of it; 0 where nothing is offered)."""
        nodes = self._nodes
        return self._add(
            nodes.used[column, self.rows], self._cls.footprint.usage[column], nodes.inverse[column, self.rows]
        )

    def processor_and_memory(self) -> FloatArray:
        """float[2, ...]: the used parts of CPU and memory."""
        usage = self._cls.footprint.usage[_SCORED, None]
        return self._add(self._nodes.used[_SCORED, self.rows], usage, self._shared_inverse())

    def processor_and_memory_before(self) -> FloatArray:
        """float[2, ...]: the same without the last of the copies."""
        usage = self._cls.footprint.usage[_SCORED, None]
        return self._add(self._nodes.used[_SCORED, self.rows], usage, self._shared_inverse(), less=1)

    def scored(self) -> FloatArray:
        """float[2, ...]: CPU and memory with kube-scheduler's defaults for containers without requests."""
        return self._add(
            self._nodes.scored[:, self.rows], self._cls.footprint.scored[:, None], self._shared_inverse()
        )

    def _shared_inverse(self) -> FloatArray:
        if self._inverse is None:
            self._inverse = self._nodes.inverse[_SCORED, self.rows]
        return self._inverse

    def _add(
        self, used: IntArray, request: IntArray | np.int64, inverse: FloatArray, less: int = 0
    ) -> npt.NDArray[np.float64]:
        if self._copies is None:
            return (used + request * (1 - less)) * inverse if less == 0 else used * inverse
        step = np.broadcast_to(request, used.shape)[..., None] * (self._copies - less)
        return (used[..., None] + step) * inverse[..., None]
