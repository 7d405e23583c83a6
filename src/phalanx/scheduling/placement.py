"""Where identical pods go: one vectorised step with exactly the result of placing them one by one."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.labels import Rows
from phalanx.cluster.nodes import NodeTable
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.scheduling.load import Load
from phalanx.scheduling.plugin import Plugin

# A class that lags behind by more than this part of the table is scored anew as a whole; that is cheaper.
_RESCORE_PART = 4
# Copies are placed in blocks of at most this many, which bounds the rows-by-copies score matrix. Splitting a run
# of identical pods does not change where they go.
_BLOCK = 256

NOWHERE = -np.inf


class ClassView:
    """One class against all rows: `mask` (filters), `preference` (label scores), `score` (-inf: does not fit)."""

    __slots__ = ("cls", "cursor", "label_cursor", "mask", "preference", "score")

    def __init__(self, cls: ClassRecord, capacity: int) -> None:
        self.cls = cls
        self.mask: BoolArray = np.zeros(capacity, dtype=np.bool_)
        self.preference: FloatArray | None = None
        self.score: FloatArray = np.full(capacity, NOWHERE)
        self.cursor = -1
        self.label_cursor = -1


class Placer:
    """Caches a view per class and brings it up to date from the table's change logs.

    Ties go to the lowest row: the node that was seen first. `filters`, `preferences` and `scorers` are plugins
    that implement the respective extension point.
    """

    def __init__(
        self,
        nodes: NodeTable,
        filters: Sequence[Plugin],
        preferences: Sequence[Plugin],
        scorers: Sequence[Plugin],
    ) -> None:
        self._nodes = nodes
        self._filters = filters
        self._preferences = preferences
        self._scorers = scorers
        self._views: dict[int, ClassView] = {}

    def view(self, cls: ClassRecord) -> ClassView:
        """The class's view, current with the table."""
        view = self._views.get(cls.number)
        if view is None:
            view = self._views[cls.number] = ClassView(cls, self._nodes.capacity)
        nodes = self._nodes
        if view.label_cursor != nodes.relabelled.end or len(view.score) != nodes.capacity:
            self._refresh_mask(view)
        if view.cursor != nodes.changes.end:
            self._refresh_score(view)
        return view

    def place(self, cls: ClassRecord, count: int) -> list[int]:
        """Rows for up to `count` copies of the class, in placement order; fewer if fewer fit.

        Nothing is charged: the caller applies the rows (see `Transaction.place`) before the next call. At most
        one block is answered at a time, so a short answer of a full block does not mean that no more fit: call
        again until it is empty.
        """
        view = self.view(cls)
        if count == 1:
            row = int(view.score.argmax())
            return [row] if view.score[row] > NOWHERE else []
        return self._place_block(view, min(count, _BLOCK))

    def copies(self, cls: ClassRecord, rows: Rows) -> IntArray:
        """int64[rows]: how many copies each row has room for, filters aside."""
        nodes = self._nodes
        idle = nodes.idle[cls.columns][:, rows]
        fits: IntArray = np.maximum(0, (idle // cls.amounts[:, None]).min(axis=0))
        return np.minimum(fits, 1) if cls.pod_class.host_ports else fits

    def room(self, cls: ClassRecord) -> int:
        """How many copies of the class fit on all nodes together."""
        rows = np.flatnonzero(self.view(cls).mask)
        return int(self.copies(cls, rows).sum())

    def _place_block(self, view: ClassView, count: int) -> list[int]:
        score = view.score
        candidates = _best(score, count)
        if not len(candidates):
            return []
        copies = np.minimum(self.copies(view.cls, candidates), count)
        deepest = int(copies.max())
        if deepest == 1:
            order = np.lexsort((candidates, -score[candidates]))
            return [int(row) for row in candidates[order[:count]]]
        ladder = self._ladder(view, candidates, deepest)
        return _climb(candidates.tolist(), copies.tolist(), ladder, count)

    def _ladder(self, view: ClassView, rows: npt.NDArray[np.intp], deepest: int) -> list[list[float]]:
        """[rows][copies]: the score of the j-th copy on each row."""
        copies = np.arange(1, deepest + 1, dtype=np.int64)
        total = np.zeros((len(rows), deepest))
        load = Load(view.cls, self._nodes, rows, copies)
        for scorer in self._scorers:
            total += scorer.score(view.cls, load)
        if view.preference is not None:
            total += view.preference[rows, None]
        ladder: list[list[float]] = total.tolist()
        return ladder

    def _refresh_mask(self, view: ClassView) -> None:
        nodes = self._nodes
        stale = nodes.relabelled.since(view.label_cursor) if view.label_cursor >= 0 else None
        if stale is None or len(view.score) != nodes.capacity or len(stale) * _RESCORE_PART > nodes.capacity:
            view.mask = self._filter(view.cls, slice(None))
            view.score = np.full(nodes.capacity, NOWHERE)
            view.cursor = -1
        else:
            rows = np.unique(np.array(stale, dtype=np.intp))
            view.mask[rows] = self._filter(view.cls, rows)
            view.score[rows] = NOWHERE
            self._score_rows(view, rows)
        preference = self._preference(view)
        if preference is not None or view.preference is not None:
            # Preferences are normalised over all eligible nodes, so one relabelled node may shift them all.
            view.preference = preference
            view.cursor = -1
        view.label_cursor = nodes.relabelled.end

    def _filter(self, cls: ClassRecord, rows: Rows) -> BoolArray:
        mask: BoolArray = self._nodes.alive[rows].copy()
        for plugin in self._filters:
            mask &= plugin.filter(cls, self._nodes, rows)
        return mask

    def _preference(self, view: ClassView) -> FloatArray | None:
        total: FloatArray | None = None
        for plugin in self._preferences:
            part = plugin.preference(view.cls, self._nodes, view.mask)
            if part is not None:
                total = part if total is None else total + part
        return total

    def _refresh_score(self, view: ClassView) -> None:
        nodes = self._nodes
        changed = nodes.changes.since(view.cursor) if view.cursor >= 0 else None
        if changed is None or len(changed) * _RESCORE_PART > nodes.capacity:
            self._score_rows(view, np.flatnonzero(view.mask))
        else:
            self._score_rows(view, np.array(changed, dtype=np.intp))
        view.cursor = nodes.changes.end

    def _score_rows(self, view: ClassView, rows: npt.NDArray[np.intp]) -> None:
        """Scores some rows (repeats are harmless)."""
        cls, nodes = view.cls, self._nodes
        fits = (nodes.idle[cls.columns[:, None], rows] >= cls.amounts[:, None]).all(axis=0)
        fits &= view.mask[rows]
        load = Load(cls, nodes, rows)
        total: FloatArray | float = 0.0
        for scorer in self._scorers:
            total = total + scorer.score(cls, load)
        if view.preference is not None:
            total = total + view.preference[rows]
        view.score[rows] = np.where(fits, total, NOWHERE)


def _best(score: FloatArray, count: int) -> npt.NDArray[np.intp]:
    """The `count` best rows by (score descending, row ascending), in row order; fewer if fewer fit.

    Greedy placement of `count` copies touches at most `count` rows, and an untouched row keeps its first score:
    so no row outside these can ever be the best one while the copies are placed, whatever the scores do later.
    """
    if count >= len(score):
        return np.flatnonzero(score > NOWHERE)
    threshold = np.partition(score, len(score) - count)[len(score) - count]
    if threshold == NOWHERE:
        return np.flatnonzero(score > NOWHERE)
    above = np.flatnonzero(score > threshold)
    level = np.flatnonzero(score == threshold)[: count - len(above)]
    return np.sort(np.concatenate([above, level]))


def _climb(rows: list[int], copies: list[int], ladder: list[list[float]], count: int) -> list[int]:
    """Takes the best next copy `count` times: each row's copies come in order, ties go to the lowest row."""
    heap = [(-steps[0], row, place, 1) for place, (row, steps) in enumerate(zip(rows, ladder, strict=True))]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < count:
        _, row, place, taken = heap[0]
        chosen.append(row)
        if taken < copies[place]:
            heapq.heapreplace(heap, (-ladder[place][taken], row, place, taken + 1))
        else:
            heapq.heappop(heap)
    return chosen
