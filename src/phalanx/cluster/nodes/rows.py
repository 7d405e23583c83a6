"""Rows of nodes: one row per node, one array per quantity, all updated in O(change)."""

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
# From this number of equal charges on, one vectorized charge is faster.
_MANY = 8
NO_ROW = -1


class NodeRows:
    """Resource-major int64 arrays over rows; a free row is not `alive`.

    `allocatable[R, N]` are the kubelets' allocatable amounts, `used` those of bound and placed pods, `releasing`
    the part of `used` that terminating pods will release, `reserved` those of nominated pods. `idle` = allocatable
    - used - reserved, possibly negative (a device plugin can withdraw used resources). `inverse` = 1 / allocatable
    (0 without any) and `scored[2, N]` (CPU and memory with kube-scheduler's defaults for containers without
    requests) serve the scores. Rows from `extent` on were never used.

    `marked` are the rows of nodes that we have cordoned for maintenance: they are not `unschedulable`, but closed
    by their window (`NodeTable.maintenance`), so that planners know the end.

    `changes` records every row with changed amounts, `relabelled` every row with changed labels, taints, features,
    wanted images, offered GPUs or liveness: readers keep a cursor and process only these rows. Rows in the latter
    are in the former too. Rows are reused lowest first, so equal histories produce equal tables.
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
        #: Number that grows when the allocatable amounts of a node, or the size of the arrays, change.
        self.offers = 0
        # Deferred charges (see `charged_together`): row, usage, scored, sign.
        self._uncharged: list[tuple[int, IntArray, IntArray, int]] | None = None
        self._row_of: dict[str, int] = {}
        self._free: list[int] = list(range(capacity))

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def capacity(self) -> int:
        """Length of the arrays over node rows."""
        return len(self.names)

    def row(self, name: str) -> int:
        """Return the row of a node; NO_ROW for an unknown node."""
        return self._row_of.get(name, NO_ROW)

    def rows(self) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self.alive)

    def widen(self) -> None:
        """Extend the arrays to resources that the resource space has added."""
        missing = len(self.space) - len(self.used)
        if missing <= 0:
            return
        self._charge_gathered()
        self.offers += 1
        for name in ("allocatable", "used", "releasing", "reserved", "idle", "inverse"):
            array = getattr(self, name)
            extra = np.zeros((missing, self.capacity), dtype=array.dtype)
            setattr(self, name, np.concatenate([array, extra]))

    def upsert(self, node: Node) -> tuple[int, bool]:
        """Add or update a node. Return its row, and whether a pod can fit now that did not before."""
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
        cards = self.space.cards
        if cards and any(offered[column] != self.allocatable[column, row] for column in cards):
            self.relabelled.note(row)
        self.allocatable[:, row] = offered
        self.offers += 1
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
        """Free the row of a node and return it; the caller has removed its pods before."""
        row = self._row_of.pop(name)
        self.names[row] = ""
        removed_node, self.nodes[row] = self.nodes[row], None
        self.alive[row] = False
        for array in (self.allocatable, self.used, self.releasing, self.reserved, self.idle, self.scored):
            array[:, row] = 0
        self.inverse[:, row] = 0.0
        if removed_node is not None:
            self.images.set(row, removed_node.images, ())
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
        """Add (sign 1) or remove (sign -1) one pod's usage int64[R] and scored amounts int64[2] on a node row."""
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
        """Context that defers all charges to its end, for thousands of observed pods. Within it, amounts are
        outdated, and nodes must not be added or removed."""
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
            rows, signs = [row for row, _, _, _ in group], [sign for _, _, _, sign in group]
            self.charge_many(rows, group[0][1], group[0][2], np.array(signs, dtype=np.int64))
        self._uncharged = []

    def charge_many(self, rows: list[int], usage: IntArray, scored: IntArray, sign: int | IntArray) -> None:
        """Add (sign 1) or remove (sign -1) identical pods, one on each of the node rows, which can repeat."""
        where = np.array(rows, dtype=np.intp)
        for column in np.flatnonzero(usage).tolist():
            amount = usage[column] * sign
            np.add.at(self.used[column], where, amount)
            np.subtract.at(self.idle[column], where, amount)
        for used, amount in zip(self.scored, scored, strict=True):
            np.add.at(used, where, amount * sign)
        self.changes.note_all(dict.fromkeys(rows))

    def charge_sums(self, amounts: IntArray, sign: int) -> None:
        """Add (sign 1) or remove (sign -1) the used amounts int64[R, N] on all nodes at once; the scored amounts
        are unchanged."""
        self.used += sign * amounts
        self.idle -= sign * amounts
        self.changes.note_all(np.flatnonzero(amounts.any(axis=0)).tolist())

    def release_later(self, row: int, usage: IntArray, sign: int) -> None:
        """Count a terminating pod's usage as releasing; it stays in `used` until the pod is gone."""
        self.releasing[:, row] += sign * usage

    def reserve(self, row: int, usage: IntArray, sign: int) -> None:
        """Reserve an amount on a node for a nominated pod."""
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
        self.offers += 1
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
    """Return a node's taints without the one that the node controller adds for our own cordon."""
    if not node.cordoned_by:
        return node.taints
    return tuple(taint for taint in node.taints if taint.key != CORDONED.key)


def _eligibility(node: Node | None) -> object:
    """Return the properties of a node, amounts aside, that determine which pods it accepts."""
    return node and (node.labels, node.taints, node.unschedulable, node.cordoned_by, node.features, node.cards)
