"""Placement of copies that affect each other, one after the other, at a cost by number of domains.

Rows with equal values of all relevant labels form a group. A further copy changes whole groups, so each step
compares the best row of every group instead of all nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from phalanx.cluster.affinity.domains import LabelDomains
from phalanx.cluster.affinity.state import SpreadConstraint
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.scheduling.placement.inter_pod_constraints import (
    Grouping,
    InterPodConstraints,
    PreferredAffinity,
    SoftConstraint,
)

RowArray = npt.NDArray[np.intp]
CopyScores = Callable[[RowArray, int], FloatArray]
"""float[rows, copies]: the score of the j-th copy on each row, without rules about other pods."""

NOWHERE = -np.inf
# Factor by which the look-ahead over the copies of one row grows if it is too short.
_DEEPER = 8


class GrowingLimit:
    """Required spread over domains of one row each: further rows open only when the emptiest have filled up."""

    def __init__(self, constraint: SpreadConstraint) -> None:
        region = constraint.counter.region
        self._where = region.where
        self._counts = constraint.counter.counts.copy()
        self._minimum = constraint.least()
        eligible = np.flatnonzero(region.present[:-1] > 0)
        fixed = len(eligible) < constraint.rule.min_domains
        self._emptiest_rows = -1 if fixed else int((self._counts[eligible] == self._minimum).sum())

    def add_copy(self, row: int) -> bool:
        """Count a copy; return whether further rows may be open from now on."""
        domain = self._where[row]
        if domain < 0:
            return False
        level = int(self._counts[domain])
        self._counts[domain] += 1
        if level == self._minimum:
            self._emptiest_rows -= 1
        return self._emptiest_rows == 0


class _GroupSpread:
    """Required spread over groups."""

    def __init__(self, constraint: SpreadConstraint, rows: RowArray) -> None:
        region = constraint.counter.region
        self._ids = constraint.domains.ids[rows]
        self._labelled = self._ids >= 0
        self._where = region.where[rows].tolist()
        self._counts = constraint.counter.counts.copy()
        self._eligible = np.flatnonzero(region.present[:-1] > 0)
        rule = constraint.rule
        self._slack = rule.max_skew - constraint.own
        self._fixed = len(self._eligible) < rule.min_domains
        self._unlimited = not len(self._eligible)

    def open(self) -> BoolArray:
        if self._unlimited and not self._fixed:
            return self._labelled
        minimum = 0 if self._fixed else int(self._counts[self._eligible].min())
        return (self._counts[self._ids] <= self._slack + minimum) & self._labelled

    def add_copy(self, group: int) -> None:
        if self._where[group] >= 0:
            self._counts[self._where[group]] += 1


class _GroupPreferences:
    """Preferred spread and affinity over groups."""

    def __init__(self, constraints: InterPodConstraints, rows: RowArray) -> None:
        self._constraints = constraints
        self._labelled: BoolArray = constraints.labelled[rows]
        self._everywhere = np.ones(len(rows), dtype=np.bool_)
        self._soft_constraints = [(soft, *_counted(soft, rows)) for soft in constraints.soft_constraints]
        self._affinities = [_weights_of(preferred, rows) for preferred in constraints.preferred_affinities]
        self._growths = [preferred.growth for preferred in constraints.preferred_affinities]

    def add_copy(self, group: int) -> None:
        for soft, _, where, counts in self._soft_constraints:
            if where[group] >= 0:
                counts[where[group]] += soft.growth
        for (ids, weights), growth in zip(self._affinities, self._growths, strict=True):
            if ids[group] >= 0:
                weights[ids[group]] += growth

    def points(self) -> FloatArray:
        total = np.zeros(len(self._labelled))
        if self._soft_constraints:
            parts = [(ids, counts) for _, ids, _, counts in self._soft_constraints]
            total += self._constraints.spread_points(parts, self._labelled)
        if self._affinities:
            raw = sum((weights[ids] for ids, weights in self._affinities), start=np.zeros(1, dtype=np.int64))
            total += self._constraints.affinity_points(raw, self._everywhere)
        return total


class DomainGreedy:
    """Greedy placement by domains. `first` float[N] is the score of the next copy on each row (NOWHERE where none
    fits), `limits` int64[N] the number of copies per row.

    `varying` spread constraints and `closing` labels are updated after every copy, preferences if they are
    `self_affecting`. A copy that opens rows of a `rising` constraint is the last one.
    """

    def __init__(
        self,
        constraints: InterPodConstraints,
        grouping: Grouping,
        first: FloatArray,
        limits: Callable[[RowArray], IntArray],
        copy_scores: CopyScores,
        varying: Sequence[SpreadConstraint],
        closing: Sequence[LabelDomains],
        rising: Sequence[SpreadConstraint],
    ) -> None:
        groups = grouping.rows
        self._of = grouping.of
        self._size = len(groups)
        self._first = first
        self._limits = limits
        self._copy_scores = copy_scores
        self._varying = [_GroupSpread(constraint, groups) for constraint in varying]
        self._closing = [constraint.ids[groups] for constraint in closing]
        self._rising = [GrowingLimit(constraint) for constraint in rising]
        self._preferred = _GroupPreferences(constraints, groups) if constraints.self_affecting else None
        self._allowed = np.ones(self._size, dtype=np.bool_)
        for constraint, ids in zip(closing, self._closing, strict=True):
            self._allowed &= constraints.tolerant(constraint)[ids]
        self._deeper_scores: dict[int, list[float]] = {}

    def run(self, count: int) -> list[int]:
        """Return the rows of up to `count` copies, in order."""
        self._sort_rows(count)
        chosen: list[int] = []
        open_groups = self._open()
        points = self._preferred.points() if self._preferred is not None else None
        while len(chosen) < count:
            value = self._head if points is None else self._head + points
            value = np.where(open_groups, value, NOWHERE)
            best = value.max(initial=NOWHERE)
            if best == NOWHERE:
                break
            ties = np.flatnonzero(value == best)
            group = int(ties[0]) if len(ties) == 1 else int(ties[self._head_row[ties].argmin()])
            row = self._place_on_best_row(group)
            chosen.append(row)
            opens = [constraint.add_copy(row) for constraint in self._rising]
            if any(opens):
                break
            if self._varying or self._closing:
                self._add_copy(group)
                open_groups = self._open()
            if self._preferred is not None:
                self._preferred.add_copy(group)
                points = self._preferred.points()
        return chosen

    def _sort_rows(self, count: int) -> None:
        """Sort the rows of each group by the score of their next copy, at most `count` rows."""
        rows = np.flatnonzero(self._first > NOWHERE)
        of = self._of[rows]
        order = np.lexsort((rows, -self._first[rows], of))
        rows, of = rows[order], of[order]
        starts = np.searchsorted(of, np.arange(self._size + 1))
        chosen = np.arange(len(rows)) - starts[of] < count
        self._rows, of = rows[chosen], of[chosen]
        self._starts = np.searchsorted(of, np.arange(self._size + 1))
        self._head = np.full(self._size, NOWHERE)
        self._head_row = np.zeros(self._size, dtype=np.int64)
        some = np.flatnonzero(self._starts[1:] > self._starts[:-1])
        self._head[some] = self._first[self._rows[self._starts[some]]]
        self._head_row[some] = self._rows[self._starts[some]]
        self._heaps: dict[int, list[tuple[float, int, int, int]]] = {}
        self._row_limits = self._limits(self._rows).tolist()
        several = max(self._row_limits, default=1) > 1
        self._second: list[float] = self._copy_scores(self._rows, 2)[:, 1].tolist() if several else []

    def _heap_of(self, group: int) -> list[tuple[float, int, int, int]]:
        """Return a heap of (-score, row, position, number of the copy) of a group."""
        heap = self._heaps.get(group)
        if heap is None:
            places = range(int(self._starts[group]), int(self._starts[group + 1]))
            rows = self._rows[places.start : places.stop]
            scores = (-self._first[rows]).tolist()
            # sorted already, so it is a valid heap
            heap = self._heaps[group] = [
                (score, row, place, 1) for score, row, place in zip(scores, rows.tolist(), places, strict=True)
            ]
        return heap

    def _place_on_best_row(self, group: int) -> int:
        """Place a copy on the best row of a group; return the row."""
        heap = self._heap_of(group)
        _, row, place, copies = heap[0]
        if copies < self._row_limits[place]:
            following = self._second[place] if copies == 1 else self._next_score(place, copies)
            heapq.heapreplace(heap, (-following, row, place, copies + 1))
        else:
            heapq.heappop(heap)
        if heap:
            self._head[group], self._head_row[group] = -heap[0][0], heap[0][1]
        else:
            self._head[group] = NOWHERE
        return row

    def _next_score(self, place: int, copies: int) -> float:
        """Return the score of one more copy on a row with `copies` copies."""
        steps = self._deeper_scores.get(place, [])
        if len(steps) <= copies:
            depth = min(copies * _DEEPER, self._row_limits[place])
            steps = self._deeper_scores[place] = self._copy_scores(self._rows[place : place + 1], depth)[0].tolist()
        return steps[copies]

    def _add_copy(self, group: int) -> None:
        for constraint in self._varying:
            constraint.add_copy(group)
        for ids in self._closing:
            if ids[group] >= 0:
                self._allowed &= ids != ids[group]

    def _open(self) -> BoolArray:
        open_groups = self._allowed
        for constraint in self._varying:
            open_groups = open_groups & constraint.open()
        return open_groups


def until_limits_grow(rising: Sequence[SpreadConstraint], rows: list[int]) -> list[int]:
    """Return the rows up to the first that opens other rows."""
    if rising:
        levels = [GrowingLimit(constraint) for constraint in rising]
        for place, row in enumerate(rows, start=1):
            risen = [level.add_copy(row) for level in levels]
            if any(risen):
                return rows[:place]
    return rows


def _counted(soft: SoftConstraint, rows: RowArray) -> tuple[npt.NDArray[np.int32], list[int], IntArray]:
    """Return (domain of each group, domain in which its pods count, counts by domain)."""
    counter = soft.constraint.counter
    return soft.constraint.domains.ids[rows], counter.region.where[rows].tolist(), counter.counts.copy()


def _weights_of(preferred: PreferredAffinity, rows: RowArray) -> tuple[npt.NDArray[np.int32], IntArray]:
    return preferred.domains.ids[rows], preferred.weighed()
