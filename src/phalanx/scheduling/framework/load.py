"""Load of nodes with further pods of a class: the input of all scores by amounts."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import CPU_COLUMN, MEMORY_COLUMN, FloatArray, IntArray

_SCORED = slice(CPU_COLUMN, MEMORY_COLUMN + 1)

Number = TypeVar("Number", np.int64, np.float64)


class Load:
    """Load of rows with the pod placed.

    Without `copies` every array is shaped [rows] and one copy is added. With `copies` int64[J] (1, 2, ... J) arrays
    are shaped [rows, J]; column j is the load with `copies[j]` copies. A score in numpy operators thus works for a
    whole cluster, a few changed nodes, and the look-ahead over copies.
    """

    __slots__ = ("_cls", "_inverse", "_used", "copies", "nodes", "rows")

    def __init__(
        self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows, copies: IntArray | None = None
    ) -> None:
        self._cls = pod_class
        self.nodes = nodes
        self.rows = rows
        self.copies = copies
        self._used: IntArray | None = None
        self._inverse: FloatArray | None = None

    @property
    def depth(self) -> int:
        """Number of copies of the look-ahead."""
        return 1 if self.copies is None else len(self.copies)

    @property
    def allocatable(self) -> IntArray:
        """Allocatable amounts of the rows, int64[R, rows(, 1)]."""
        columns = self._at_rows(self.nodes.allocatable)
        return columns if self.copies is None else columns[..., None]

    def offered(self, column: int) -> IntArray:
        """Return the allocatable amounts of one resource, int64[rows(, 1)]."""
        amounts = self._at_rows(self.nodes.allocatable[column])
        return amounts if self.copies is None else amounts[:, None]

    def column(self, resource: str) -> int | None:
        """Return the position of a resource in the load's arrays; None if no node offers and no pod requests it."""
        return self.nodes.space.find(resource)

    def fraction(self, column: int) -> FloatArray:
        """Return the used part of one resource per node row (1.0 = all; 0 where no amount is offered)."""
        nodes = self.nodes
        used, inverse = self._at_rows(nodes.used[column]), self._at_rows(nodes.inverse[column])
        return self._with_pods(used, self._cls.footprint.usage[column], inverse)

    def fraction_within(self, ids: npt.NDArray[np.intp], count: int, column: int) -> FloatArray:
        """Return the used part of one resource in each row's domain, `ids[N]` of `count`; 0 without a domain
        (number 0).
        """
        nodes = self.nodes
        used = np.bincount(ids, nodes.used[column], count).astype(np.int64)
        offered = np.bincount(ids, nodes.allocatable[column], count)
        inverse: FloatArray = np.zeros(count)
        np.divide(1.0, offered, out=inverse, where=offered > 0)
        inverse[0] = 0.0
        here = ids[self.rows]
        return self._with_pods(used[here], self._cls.footprint.usage[column], inverse[here])

    def processor_and_memory(self) -> FloatArray:
        """Return float[2, ...]: the used parts of CPU and memory."""
        usage = self._cls.footprint.usage[_SCORED, None]
        return self._with_pods(self._processor_and_memory_used(), usage, self._processor_and_memory_inverse())

    def imbalances(self) -> tuple[FloatArray, FloatArray]:
        """Return float[...]: the differences of the used parts of CPU and memory, without the last copy and with
        it.
        """
        used, inverse = self._processor_and_memory_used(), self._processor_and_memory_inverse()
        if self.copies is None:
            before, after = used * inverse, self.processor_and_memory()
            return np.abs(before[0] - before[1]), np.abs(after[0] - after[1])
        copies = np.arange(len(self.copies) + 1)
        amounts = used[..., None] + np.multiply.outer(self._cls.footprint.usage[_SCORED, None], copies)
        parts = amounts * inverse[..., None]
        differences = np.abs(parts[0] - parts[1])
        return differences[:, :-1], differences[:, 1:]

    def scored(self) -> FloatArray:
        """Return float[2, ...]: CPU and memory with kube-scheduler's defaults for containers without requests."""
        used = self._at_rows(self.nodes.scored)
        return self._with_pods(used, self._cls.footprint.scored[:, None], self._processor_and_memory_inverse())

    def _processor_and_memory_used(self) -> IntArray:
        if self._used is None:
            self._used = self._at_rows(self.nodes.used[_SCORED])
        return self._used

    def _processor_and_memory_inverse(self) -> FloatArray:
        if self._inverse is None:
            self._inverse = self._at_rows(self.nodes.inverse[_SCORED])
        return self._inverse

    def _at_rows(self, array: npt.NDArray[Number]) -> npt.NDArray[Number]:
        rows = self.rows
        # `take` is several times as fast as indexing for a few rows.
        return array[..., rows] if isinstance(rows, slice) else array.take(rows, axis=-1)

    def _with_pods(self, used: IntArray, request: IntArray | np.int64, inverse: FloatArray) -> FloatArray:
        result: FloatArray
        if self.copies is None:
            result = (used + request) * inverse
        else:
            result = (used[..., None] + np.multiply.outer(request, self.copies)) * inverse[..., None]
        return result
