"""The node table: one row a node, one array a quantity, everything kept up to date in O(change)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.nodes.images import ImageTable
from phalanx.cluster.nodes.labels import LabelColumn, LabelTable, TaintTable
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray, ResourceSpace
from phalanx.model.node import CORDONED, Node
from phalanx.model.selectors import Taint

_FIRST_CAPACITY = 64
# From so many like charges on it is faster to make them at once.
_MANY = 8
NO_ROW = -1


class NodeRows:
    """Resource-major int64 arrays over rows; a row that is free or whose node is gone is not `alive`.

    `allocatable[R, N]` is what the kubelets offer, `used` what bound and placed pods take, `releasing` the part of
    `used` that terminating pods will give back, `reserved` what pods of other schedulers were nominated for. `idle`
    = allocatable - used - reserved, possibly negative (a device plugin may withdraw what is in use). `inverse` = 1
    / allocatable (0 where nothing is offered) and `scored[2, N]` (CPU and memory with kube-scheduler's defaults for
    containers without requests) serve the scores. No row from `extent` on was ever used.

    `marked` are the rows of nodes that we have cordoned for maintenance: they are not `unschedulable`, but
    closed by their window (`NodeTable.maintenance`), so that whoever plans ahead sees an end of it.

    `changes` records every row whose amounts changed, `relabelled` every row whose labels, taints, features, wanted
    images or liveness changed: readers keep a cursor and redo only those. What is in the latter is in the former as
    well. Rows are reused lowest first, so equal histories give equal tables.
    """

    def __init__(self, space: ResourceSpace) -> None:
        self.space = space
        capacity, width = _FIRST_CAPACITY, len(space)
        self.names: list[str] = [""] * capacity
        self.nodes: list[Node | None] = [None] * capacity
        self.alive: BoolArray = np.zeros(capacity, dtype=np.bool_)
        self.unschedulable: BoolArray = np.zeros(capacity, dtype=np.bool_)
        self.allocatable: IntArray = np.zeros((width, capacity), dtype=np.int64)
        self.used: IntArray = np.zeros((width, capacity), dtype=np.int64)
        self.releasing: IntArray = np.zeros((width, capacity), dtype=np.int64)
        self.reserved: IntArray = np.zeros((width, capacity), dtype=np.int64)
        self.idle: IntArray = np.zeros((width, capacity), dtype=np.int64)
        self.inverse: FloatArray = np.zeros((width, capacity), dtype=np.float64)
        self.scored: IntArray = np.zeros((2, capacity), dtype=np.int64)
        self.marked: set[int] = set()
        self.labels = LabelTable(capacity)
        self.name_column = LabelColumn(capacity)
        self.taints = TaintTable(capacity)
        self.images = ImageTable()
        self.changes = ChangeLog()
        self.relabelled = ChangeLog()
        self.extent = 0
        # Charges that are still to be made (`charged_together`): row, usage, scored, sign.
        self._uncharged: list[tuple[int, IntArray, IntArray, int]] | None = None
        self._row_of: dict[str, int] = {}
        self._free: list[int] = list(range(capacity))

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def capacity(self) -> int:
        """The length of the arrays."""
        return len(self.names)

    def row(self, name: str) -> int:
        """The row of a node, or NO_ROW."""
        return self._row_of.get(name, NO_ROW)

    def rows(self) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self.alive)

    def widen(self) -> None:
        """Makes room for the resources that the space has learned since."""
        missing = len(self.space) - len(self.used)
        if missing <= 0:
            return
        self._charge_gathered()
        for name in ("allocatable", "used", "releasing", "reserved", "idle", "inverse"):
            array = getattr(self, name)
            extra = np.zeros((missing, self.capacity), dtype=array.dtype)
            setattr(self, name, np.concatenate([array, extra]))

    def upsert(self, node: Node) -> tuple[int, bool]:
        """Adds or updates a node; (its row, whether room or permission may have grown for someone)."""
        row = self._row_of.get(node.name)
        known = self.nodes[row] if row is not None else None
        if row is not None and known == node:
            return row, False
        if row is None:
            row = self._take_row(node.name)
        self.nodes[row] = node
        offered = self.space.vector(node.allocatable)
        self.widen()
        more = known is None or bool((offered > self.allocatable[:, row]).any())
        self.allocatable[:, row] = offered
        with np.errstate(divide="ignore"):
            self.inverse[:, row] = np.where(offered > 0, 1.0 / offered, 0.0)
        if _eligibility(known) != _eligibility(node):
            self.labels.set(row, dict(node.labels))
            self.taints.set(row, _taints(node))
            self.unschedulable[row] = node.unschedulable and not node.cordoned_by
            (self.marked.add if node.cordoned_by else self.marked.discard)(row)
            self.relabelled.note(row)
            more = True
        if self.images.set(row, known.images if known else (), node.images):
            self.relabelled.note(row)
        self._refresh(row)
        return row, more

    def remove(self, name: str) -> int:
        """Frees the row of a node and returns it; the caller has taken the pods off it before."""
        row = self._row_of.pop(name)
        self.names[row] = ""
        gone, self.nodes[row] = self.nodes[row], None
        self.alive[row] = False
        for array in (self.allocatable, self.used, self.releasing, self.reserved, self.idle, self.scored):
            array[:, row] = 0
        self.inverse[:, row] = 0.0
        if gone is not None:
            self.images.set(row, gone.images, ())
        self.labels.set(row, {})
        self.name_column.set(row, None)
        self.taints.set(row, ())
        self.unschedulable[row] = False
        self.marked.discard(row)
        heapq.heappush(self._free, row)
        self.changes.note(row)
        self.relabelled.note(row)
        return row

    def charge(self, row: int, usage: IntArray, scored: IntArray, sign: int) -> None:
        """Adds (sign 1) or takes back (sign -1) one pod's usage int64[R] and scored amounts int64[2]."""
        if self._uncharged is not None:
            self._uncharged.append((row, usage, scored, sign))
            return
        if sign > 0:
            self.used[:, row] += usage
            self.idle[:, row] -= usage
            self.scored[:, row] += scored
        else:
            self.used[:, row] -= usage
            self.idle[:, row] += usage
            self.scored[:, row] -= scored
        self.changes.note(row)

    @contextmanager
    def charged_together(self) -> Iterator[None]:
        """Whatever is charged within is charged at the end: for thousands of pods that are seen at once. Until then
        nobody may look at amounts, nor may nodes come or go."""
        self._uncharged = []
        try:
            yield
        finally:
            self._charge_gathered()
            self._uncharged = None

    def _charge_gathered(self) -> None:
        if not self._uncharged:
            return
        charges, self._uncharged = self._uncharged, None
        alike: dict[tuple[int, int], list[tuple[int, IntArray, IntArray, int]]] = {}
        for charge in charges:
            alike.setdefault((id(charge[1]), id(charge[2])), []).append(charge)
        for group in alike.values():
            if len(group) < _MANY:
                for charge in group:
                    self.charge(*charge)
                continue
            rows, where = np.unique([row for row, _, _, _ in group], return_inverse=True)
            counts = np.zeros(len(rows), dtype=np.int64)
            np.add.at(counts, where, [sign for _, _, _, sign in group])
            self.charge_many(rows, counts, group[0][1], group[0][2], 1)
        self._uncharged = []

    def charge_many(
        self, rows: npt.NDArray[np.intp], counts: IntArray, usage: IntArray, scored: IntArray, sign: int
    ) -> None:
        """Adds (or takes back) `counts[i]` identical pods on each distinct `rows[i]`."""
        amounts = usage[:, None] * (counts * sign)
        self.used[:, rows] += amounts
        self.idle[:, rows] -= amounts
        self.scored[:, rows] += scored[:, None] * (counts * sign)
        self.changes.note_all(rows.tolist())

    def charge_sums(self, amounts: IntArray, sign: int) -> None:
        """Adds (or takes back) int64[R, N] on all nodes at once; the amounts for the scores stay as they are."""
        self.used += sign * amounts
        self.idle -= sign * amounts
        self.changes.note_all(np.flatnonzero(amounts.any(axis=0)).tolist())

    def release_later(self, row: int, usage: IntArray, sign: int) -> None:
        """Counts a terminating pod's usage as room to come; it stays in `used` until the pod is gone."""
        self.releasing[:, row] += sign * usage

    def reserve(self, row: int, usage: IntArray, sign: int) -> None:
        """Keeps room for a pod that another scheduler has nominated for this node."""
        self.reserved[:, row] += sign * usage
        self.idle[:, row] -= sign * usage
        self.changes.note(row)

    def _take_row(self, name: str) -> int:
        if not self._free:
            self._grow()
        row = heapq.heappop(self._free)
        self.extent = max(self.extent, row + 1)
        self._row_of[name] = row
        self.names[row] = name
        self.name_column.set(row, name)
        self.alive[row] = True
        return row

    def _grow(self) -> None:
        old = self.capacity
        new = old * 2
        self.names.extend([""] * old)
        self.nodes.extend([None] * old)
        self.alive = np.concatenate([self.alive, np.zeros(old, dtype=np.bool_)])
        self.unschedulable = np.concatenate([self.unschedulable, np.zeros(old, dtype=np.bool_)])
        for name in ("allocatable", "used", "releasing", "reserved", "idle", "inverse", "scored"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros_like(array)], axis=1))
        self.labels.grow(new)
        self.name_column.grow(new)
        self.taints.grow(new)
        self._free = list(range(old, new))

    def _refresh(self, row: int) -> None:
        self.idle[:, row] = self.allocatable[:, row] - self.used[:, row] - self.reserved[:, row]
        self.changes.note(row)


def _taints(node: Node) -> tuple[Taint, ...]:
    """Without the one that the node controller adds to what is cordoned, where we have done that."""
    if not node.cordoned_by:
        return node.taints
    return tuple(taint for taint in node.taints if taint.key != CORDONED.key)


def _eligibility(node: Node | None) -> object:
    """What of a node decides who may go there, amounts aside."""
    return node and (node.labels, node.taints, node.unschedulable, node.cordoned_by, node.features, node.cards)
