"""Placement of identical pods: one vectorised step with exactly the result of placing them one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from phalanx.cluster.allocators.base import NodeAllocator
from phalanx.cluster.allocators.ports import PORTS
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.inter_pod_rules import NO_RULES, InterPodRules
from phalanx.scheduling.framework.plugin import Plugin, overrides
from phalanx.scheduling.framework.plugin_runtime import PluginRuntime, ReservedRoom
from phalanx.scheduling.placement.class_views import ClassView, ClassViews, RowArray
from phalanx.scheduling.placement.domain_greedy import NOWHERE, CopyScores, DomainGreedy, until_limits_grow
from phalanx.scheduling.placement.inter_pod_constraints import (
    InterPodConstraints,
    node_domains,
    partition,
)
from phalanx.scheduling.placement.largest_idle import LargestIdle

# Maximum block of copies, which bounds the rows-by-copies score matrix. Splitting a run of identical pods does not
# change the result.
_BLOCK = 256
# Maximum block of copies that affect each other.
_PEER_BLOCK = 1024

# Up to this many copies the best rows are found by repeated argmax.
_FEW = 8
# Number of groups of rows per copy, for a bound of the best scores.
_GROUPS = 4
# Factor by which the look-ahead over the copies of the rows grows if it is too short.
_DEEPER = 4


class Placer:
    """Placement by the plugins of a policy. Ties are decided for the lowest row: the node that was seen first.

    `filters`, `preferences` and `scorers` are plugins that implement the respective extension point; filters that
    also implement `pre_bind_check` check each chosen row. `allocators` are the names of the policy's node
    allocators, `rules` its rules about other pods, `limits` plugins that implement `max_copies`. `reserved` is the
    room that is reserved for later starts.
    """

    def __init__(
        self,
        nodes: NodeTable,
        filters: Sequence[Plugin],
        preferences: Sequence[Plugin],
        scorers: Sequence[Plugin],
        allocators: Collection[str] = (),
        rules: InterPodRules = NO_RULES,
        limits: Sequence[Plugin] = (),
    ) -> None:
        self._nodes = nodes
        self._pre_bind_plugins = [plugin for plugin in filters if overrides(plugin, "pre_bind_check")]
        self._views = ClassViews(nodes, filters, preferences, scorers, allocators, rules, limits)
        self._largest_idle = LargestIdle(nodes)
        self._scope: BoolArray | None = None
        self._extra_score: FloatArray | None = None
        # Number of times that all eligibility was discarded.
        self.invalidations = 0

    @property
    def reserved(self) -> ReservedRoom | None:
        """Room that is closed to pods for a time."""
        return self._views.reserved

    @reserved.setter
    def reserved(self, room: ReservedRoom | None) -> None:
        self._views.reserved = room

    def invalidate(self) -> None:
        """Drop all views: results of filters and preferences have changed although no node has."""
        self._views.invalidate()
        self.invalidations += 1

    def class_view(self, pod_class: ClassRecord) -> ClassView:
        """Return the class's view, up to date with the table."""
        return self._views.complete(pod_class)

    def stated_preference(self, pod_class: ClassRecord) -> FloatArray | None:
        """Return float64[N]: how much pods of the class prefer each row, by their own rules and those of nodes."""
        return self._views.stated_preference(pod_class)

    def allocators(self, pod_class: ClassRecord) -> list[NodeAllocator]:
        """Return the node allocators that concern the class and belong to the policy."""
        return self._views.allocators_of(pod_class)

    def eligible_rows(self, pod_class: ClassRecord) -> BoolArray:
        """Return bool[N]: the rows that are open to the class now, whatever pods are there."""
        return self._views.current(pod_class, scored=False).static

    def open_in_time(self, pod_class: ClassRecord) -> BoolArray:
        """Return bool[N]: the rows open to the class where a pod that is placed now ends before maintenance."""
        return self.eligible_rows(pod_class) & self._views.in_time(pod_class, slice(None))

    def lasting_rows(self, pod_class: ClassRecord) -> BoolArray:
        """Return bool[N]: the rows that are open to the class at some time, whatever pods are there."""
        return self._views.lasting(pod_class)

    def place(self, pod_class: ClassRecord, count: int) -> list[int]:
        """Return rows for up to `count` copies of the class, in placement order; fewer if fewer fit.

        Nothing is charged: the caller applies the rows (see `Transaction.place`) before the next call. At most one
        block is returned, so a full block does not mean that no more fit: call again until the result is empty.
        """
        while True:
            rows = self._choose(pod_class, count)
            if not self._pre_bind_plugins:
                return rows
            refused = [row for row in dict.fromkeys(rows) if not self._pre_bind_allows(pod_class, row)]
            if not refused:
                return rows
            for row in refused:
                self._nodes.relabelled.note(row)
                self._nodes.changes.note(row)

    def _pre_bind_allows(self, pod_class: ClassRecord, row: int) -> bool:
        return all(plugin.pre_bind_check(pod_class, self._nodes, row) for plugin in self._pre_bind_plugins)

    def _choose(self, pod_class: ClassRecord, count: int) -> list[int]:
        view = self._views.current(pod_class)
        if (
            count == 1
            or self._single
            or any(allocator.shared(pod_class.spec) for allocator in self._views.allocators_of(pod_class))
        ):
            return self._place_one(view)
        if view.constraints is not None:
            return self._place_among_peers(view, view.constraints, count)
        return self._place_block(view, self._in_scope(view.base[: self._nodes.extent]), min(count, _BLOCK))

    def accepts(self, pod_class: ClassRecord, row: int) -> bool:
        """Return whether one copy fits on a row now, under all filters and with all placed pods."""
        fits = bool(self._views.complete(pod_class).score[row] > NOWHERE) and (
            self._scope is None or bool(self._scope[row])
        )
        return fits and self._pre_bind_allows(pod_class, row)

    def may_stay_nominated(self, pod_class: ClassRecord, row: int) -> bool:
        """Return whether a nominated row is still eligible for the class, independent of other pods."""
        static = self._views.current(pod_class, scored=False).static
        return bool(static[row]) and bool(self._views.in_time(pod_class, slice(row, row + 1)).all())

    def open_rows(self, pod_class: ClassRecord) -> BoolArray:
        """Return bool[N]: the rows open to one copy without amounts and allocators.

        If there is none: the rows that could open after evictions.
        """
        view = self._views.current(pod_class, scored=False)
        rows = view.static if view.constraints is None else view.static & view.constraints.open()
        return rows if rows.any() else view.static

    def _place_one(self, view: ClassView) -> list[int]:
        score = view.base if view.constraints is None else self._views.complete(view.pod_class).score
        score = self._in_scope(score[: max(1, self._nodes.extent)])
        if self._extra_score is not None:
            score = score + self._extra_score[: len(score)]
        row = int(score.argmax())
        return [row] if score[row] > NOWHERE else []

    def _place_among_peers(self, view: ClassView, constraints: InterPodConstraints, count: int) -> list[int]:
        """Return rows for copies with rules about other pods; the block ends early before rows that its copies
        open.
        """
        if constraints.begins:
            return self._place_one(view)
        extent = self._nodes.extent
        varying, rising = partition(constraints.even, lambda constraint: node_domains(constraint.domains))
        closing, single_row_labels = partition(constraints.exclusive, node_domains)
        score = np.where(constraints.open_but_for(varying, closing), view.base, NOWHERE)
        extra: FloatArray | None = None
        if constraints.has_preferences and not constraints.self_affecting:
            extra = constraints.points()
            score = score + extra
        score = self._in_scope(score[:extent])

        def limits(rows: RowArray) -> IntArray:
            return constraints.limited(self._views.copies(view, rows), rows, rising, single_row_labels)

        def copy_scores(rows: RowArray, deepest: int) -> FloatArray:
            scores = self._views.copy_scores(view, rows, deepest)
            return scores if extra is None else scores + extra[rows, None]

        if not varying and not closing and not constraints.self_affecting:
            rows = self._place_block(view, score, min(count, _BLOCK), limits, copy_scores)
            return until_limits_grow(rising, rows)
        grouping = constraints.grouping(varying, closing)
        greedy = DomainGreedy(constraints, grouping, score, limits, copy_scores, varying, closing, rising)
        return greedy.run(min(count, _PEER_BLOCK))

    @property
    def nodes(self) -> NodeTable:
        return self._nodes

    @property
    def _single(self) -> bool:
        """True if copies of any class must be placed one at a time."""
        return self._extra_score is not None or self._views.single

    @contextmanager
    def within(self, rows: BoolArray) -> Iterator[None]:
        """Limit placements and room to these rows (bool[N]), in addition to an outer limit."""
        last, self._scope = self._scope, rows if self._scope is None else rows & self._scope
        try:
            yield
        finally:
            self._scope = last

    @contextmanager
    def with_extra_score(self, points: FloatArray | None) -> Iterator[None]:
        """Add float[N] points to the score of each row, one copy at a time; None adds nothing."""
        last, self._extra_score = self._extra_score, points
        try:
            yield
        finally:
            self._extra_score = last

    @property
    def scope(self) -> BoolArray | None:
        """The rows to which placements are limited now; None for all."""
        return self._scope

    def fits(self, pod_class: ClassRecord) -> bool:
        """Return whether at least one copy of the class fits."""
        return bool(self._in_scope(self._views.complete(pod_class).score).max() > NOWHERE)

    def certain_counts(self, classes: Sequence[ClassRecord], wanted: int) -> list[int]:
        """Return for each class the number of pods of the classes that certainly leave room for a copy, itself
        included; 0 where pods elsewhere can matter. Larger numbers than `wanted` need not be exact.
        """
        rows = [self._certain_rows(pod_class) for pod_class in classes]
        # Each pod placed takes the room of one row at most.
        counts = [len(places) for places in rows]
        if min(counts, default=wanted) >= wanted:
            return counts
        largest = np.ones(len(self._nodes.idle), dtype=np.int64)
        for pod_class in classes:
            largest[pod_class.columns] = np.maximum(largest[pod_class.columns], pod_class.amounts)
        for number, (pod_class, places) in enumerate(zip(classes, rows, strict=True)):
            if 0 < counts[number] < wanted and self._views.limits_by_amounts(pod_class):
                columns, amounts = pod_class.columns, pod_class.amounts
                beside = self._nodes.idle[columns][:, places] - amounts[:, None]
                others = (beside // largest[columns][:, None]).min(axis=0)
                # A row has room for a copy beside so many pods of any of the classes.
                counts[number] += int(others.clip(0).sum())
        return counts

    def _certain_rows(self, pod_class: ClassRecord) -> RowArray:
        """Return the rows with room for a copy, if only pods on a row itself can use its room; else none."""
        if (
            self._pre_bind_plugins
            or self._single
            or self._scope is not None
            or self._views.allocators_of(pod_class)
        ):
            return np.zeros(0, dtype=np.intp)
        view = self._views.current(pod_class)
        if view.constraints is not None:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(view.base[: self._nodes.extent] > NOWHERE)

    def lacks_amounts(self, pod_class: ClassRecord) -> bool:
        """Return whether no node has the idle amounts of one copy, reserved or not; False proves nothing."""
        return self._largest_idle.lacks(pod_class.demand)

    def total_copies(self, pod_class: ClassRecord) -> int:
        """Return the number of copies of the class that fit on all nodes together, or an upper bound.

        It is a bound for classes with rules about other pods.
        """
        view, end = self._views.current(pod_class, scored=False), self._nodes.changes.end
        if view.constraints is not None:
            potential = self._potential(view, view.constraints)
            return view.constraints.most(potential if self._scope is None else np.where(self._scope, potential, 0))
        if self._scope is not None:
            return int(
                np.where(view.allowed & self._scope, self._views.copies(view, slice(None), most=True), 0).sum()
            )
        if view.copies is None:
            view.copies = np.where(view.allowed, self._views.copies(view, slice(None), most=True), 0)
            view.room = int(view.copies.sum())
        elif view.room_cursor != end:
            changed = self._nodes.changes.since(view.room_cursor, self._nodes.capacity)
            if changed is None:
                view.copies = None
                return self.total_copies(pod_class)
            rows = set(changed)
            if len(rows) == 1:
                self._views.recount_row(view, view.copies, rows.pop())
            else:
                self._views.recount(view, view.copies, np.array(sorted(rows), dtype=np.intp))
        view.room_cursor = end
        return view.room

    def copies(self, pod_class: ClassRecord, rows: Rows) -> IntArray:
        """Return int64[rows]: the number of copies that each row has room for, without filters."""
        view = self._views.current(pod_class, scored=False)
        copies = self._views.copies(view, rows)
        return copies if view.constraints is None else view.constraints.alone(copies, rows)

    def potential(self, pod_class: ClassRecord) -> IntArray:
        """Return int64[N]: the maximum number of copies of the class per row after any other placements."""
        view = self._views.current(pod_class, scored=False)
        if view.constraints is not None:
            return self._potential(view, view.constraints)
        if self._scope is None:
            self.total_copies(pod_class)
            assert view.copies is not None
            return view.copies.copy()
        return np.where(view.allowed, self._views.copies(view, slice(None), most=True), 0)

    def _potential(self, view: ClassView, constraints: InterPodConstraints) -> IntArray:
        """Return the maximum copies per row. Other placements can only open rows that wait for affinity or
        spread.
        """
        open_rows = view.allowed & constraints.open_whatever_comes()
        return np.where(
            open_rows, constraints.alone(self._views.copies(view, slice(None), most=True), slice(None)), 0
        )

    def exclusive(self, pod_class: ClassRecord) -> bool:
        """Return whether a node can never have two copies of the class, even after evictions."""
        if any(allocator.name == PORTS for allocator in self._views.allocators_of(pod_class)):
            return True
        constraints = self._views.current(pod_class, scored=False).constraints
        if constraints is None:
            return False
        rows = np.flatnonzero(self._nodes.alive)
        return bool((constraints.alone(np.full(len(rows), 2), rows) < 2).all())

    def _in_scope(self, score: FloatArray) -> FloatArray:
        return score if self._scope is None else np.where(self._scope[: len(score)], score, NOWHERE)

    def _place_block(
        self,
        view: ClassView,
        score: FloatArray,
        count: int,
        limits: Callable[[RowArray], IntArray] | None = None,
        copy_scores: CopyScores | None = None,
    ) -> list[int]:
        candidates = best_rows(score, count)
        if not len(candidates):
            return []
        copies = np.minimum(self._views.copies(view, candidates) if limits is None else limits(candidates), count)
        if copies.max() <= 1:
            best_first: list[int] = candidates[(-score[candidates]).argsort(kind="stable")].tolist()
            return best_first
        if copy_scores is None:
            copy_scores = partial(self._views.copy_scores, view)
        return place_greedily(candidates, copies, copy_scores, count)


def build_placer(
    plugin_runtime: PluginRuntime,
    nodes: NodeTable,
) -> Placer:
    """Return the placer with the plugins of a policy."""
    for plugin in plugin_runtime.plugins("configure"):
        try:
            plugin.configure(nodes, nodes.backoff)
        except Exception as error:
            raise PolicyError(f"plugin {plugin.name} at configure: {type(error).__name__}: {error}") from error
    filters, preferences, scorers = (plugin_runtime.plugins(point) for point in ("filter", "static_score", "score"))
    return Placer(
        nodes,
        filters,
        preferences,
        scorers,
        plugin_runtime.node_allocators,
        plugin_runtime.inter_pod_rules,
        plugin_runtime.plugins("max_copies"),
    )


def best_rows(score: FloatArray, count: int) -> RowArray:
    """Return the `count` best rows by (score descending, row ascending), in row order; fewer if fewer fit.

    Greedy placement of `count` copies uses at most `count` rows, and an unused row keeps its first score. So no
    other row can be the best one while the copies are placed, however the scores change.
    """
    if count >= len(score):
        return np.flatnonzero(score > NOWHERE)
    if count <= _FEW:
        return _best_few(score.copy(), count)
    threshold = _lower_bound(score, count)
    above = (score > threshold).nonzero()[0]
    if len(above) > count:
        scores = score[above]
        threshold = np.partition(scores, len(above) - count)[len(above) - count]
        above = above[scores > threshold]
    if threshold == NOWHERE or len(above) == count:
        return above
    level = (score == threshold).nonzero()[0][: count - len(above)]
    rows = np.concatenate([above, level])
    rows.sort()
    return rows


def _lower_bound(score: FloatArray, count: int) -> float:
    """Return a lower bound of the `count`-th best score that few rows exceed.

    It is the `count`-th best of the best scores of groups of rows. Partitioning all rows is slow, above all if most
    scores are equal.
    """
    groups = min(_GROUPS * count, len(score))
    best = score[: len(score) // groups * groups].reshape(-1, groups).max(axis=0)
    bound: float = np.partition(best, groups - count)[groups - count]
    return bound


def _best_few(score: FloatArray, count: int) -> RowArray:
    """Return the `count` best rows by repeated argmax; `score` is overwritten."""
    rows: list[int] = []
    for _ in range(count):
        row = int(score.argmax())
        if score[row] == NOWHERE:
            break
        rows.append(row)
        score[row] = NOWHERE
    return np.array(sorted(rows), dtype=np.intp)


def place_greedily(rows: RowArray, copies: IntArray, copy_scores: CopyScores, count: int) -> list[int]:
    """Choose the best next copy `count` times: each row's copies in order, ties for the lowest row.

    `copies` is the number of copies per row, `rows` are in order.
    """
    deepest = int(copies.max())
    # Mostly, one copy on each row is better than a second one on any of them.
    depth = min(2, deepest)
    while True:
        # A copy with a better score than an earlier one of its row is chosen directly after that.
        scores = np.minimum.accumulate(copy_scores(rows, depth), axis=1)
        scores[:, 1:][copies[:, None] <= np.arange(1, depth)] = NOWHERE
        order = (-scores).argsort(axis=None, kind="stable")[:count]
        lowest = scores.item(order.item(-1))
        if depth == deepest or scores[:, -1][copies > depth].max(initial=NOWHERE) < lowest:
            chosen: list[int] = rows[order // depth].tolist()
            return chosen if lowest > NOWHERE else chosen[: np.count_nonzero(scores > NOWHERE)]
        depth = min(depth * _DEEPER, deepest)
