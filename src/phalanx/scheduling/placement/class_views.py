"""State of one pod class against all nodes: masks, scores and copies, updated from the table's change logs."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from phalanx.cluster.allocators.base import UNLIMITED_COPIES, NodeAllocator
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.scheduling.framework.inter_pod_rules import NO_RULES, InterPodRules
from phalanx.scheduling.framework.load import Load
from phalanx.scheduling.framework.plugin import Plugin, overrides
from phalanx.scheduling.framework.plugin_runtime import ReservedRoom
from phalanx.scheduling.placement.domain_greedy import NOWHERE
from phalanx.scheduling.placement.inter_pod_constraints import (
    InterPodConstraints,
    quantised,
)

RowArray = npt.NDArray[np.intp]

# A class with more outdated rows than this part of the table is scored again as a whole, which is cheaper.
_RESCORE_PART = 4
# Views of the most recently used classes are cached, up to about this many bytes, but at least some.
_VIEW_BYTES = 2**26
_FEWEST_VIEWS = 64


class ClassView:
    """One class against all rows: `mask` (filters), `preference` (label scores), `score` (-inf: does not fit).

    `static` is the part of `mask` that is independent of placed pods. `limit` is the number of copies that node
    allocators allow (None without allocators), `most` an upper bound on it over all choices of the allocators in
    `undercounting` (None if it is `limit`). `allowed` and `base` are `mask` and `score` without `constraints`,
    the rules about other pods (None without rules). `copies` (number that fits on each row) and their sum `room`
    are computed at the first request.
    """

    __slots__ = (
        "allocator_cursors",
        "allowed",
        "base",
        "constraints",
        "copies",
        "cursor",
        "label_cursor",
        "limit",
        "mask",
        "most",
        "peer_stamp",
        "pod_class",
        "preference",
        "quantised",
        "room",
        "room_cursor",
        "score",
        "static",
        "undercounting",
    )

    def __init__(self, pod_class: ClassRecord, capacity: int) -> None:
        self.pod_class = pod_class
        self.static: BoolArray = np.zeros(capacity, dtype=np.bool_)
        self.allowed = self.mask = self.static
        self.limit: IntArray | None = None
        self.most: IntArray | None = None
        self.undercounting: tuple[NodeAllocator, ...] = ()
        self.preference: FloatArray | None = None
        self.base: FloatArray = np.full(capacity, NOWHERE)
        self.score = self.base
        self.constraints: InterPodConstraints | None = None
        self.peer_stamp: tuple[int, ...] = ()
        self.quantised = False
        self.copies: IntArray | None = None
        self.room = 0
        self.cursor = -1
        self.label_cursor = -1
        self.allocator_cursors: tuple[int, ...] = ()
        self.room_cursor = -1


class ClassViews:
    """One view per class. `filters`, `preferences` and `scorers` are plugins that implement the respective
    extension point. `allocators` are the names of the policy's node allocators, `rules` its rules about other pods,
    `limits` plugins that implement `max_copies`. `reserved` is the room that is reserved for later starts.
    """

    def __init__(
        self,
        nodes: NodeTable,
        filters: Sequence[Plugin],
        preferences: Sequence[Plugin],
        scorers: Sequence[Plugin],
        allocators: Collection[str],
        rules: InterPodRules,
        limits: Sequence[Plugin],
    ) -> None:
        self._rules = rules
        self._limits = limits
        self.reserved: ReservedRoom | None = None
        self._nodes = nodes
        self._filters = filters
        self._allocators = frozenset(allocators)
        self._preferences = preferences
        self._scorers = scorers
        self._wide = [scorer for scorer in scorers if overrides(scorer, "depends_on_other_nodes")]
        self._views: dict[int, ClassView] = {}

    @property
    def single(self) -> bool:
        """True if copies of any class must be placed one at a time."""
        return bool(self._wide) and any(scorer.depends_on_other_nodes for scorer in self._wide)

    def invalidate(self) -> None:
        """Drop all views: results of filters and preferences have changed although no node has."""
        self._views.clear()

    def complete(self, pod_class: ClassRecord) -> ClassView:
        """Return the class's view, up to date with the table."""
        view = self.current(pod_class)
        constraints = view.constraints
        if constraints is None:
            view.mask, view.score = view.allowed, view.base
            if self._nodes.maintenance.active:
                view.mask = view.allowed & self.in_time(pod_class, slice(None))
            return view
        stamp = (constraints.ticks, self._nodes.changes.end)
        if view.peer_stamp != stamp:
            view.mask = view.allowed & constraints.open()
            if self._nodes.maintenance.active:
                view.mask &= self.in_time(pod_class, slice(None))
            points = constraints.points() if constraints.has_preferences else 0.0
            view.score = np.where(view.mask, view.base + points, NOWHERE)
            view.peer_stamp = stamp
        return view

    def current(self, pod_class: ClassRecord, scored: bool = True) -> ClassView:
        """Return the view, up to date except for rules about other pods; without `scored` its scores can be
        outdated.
        """
        view = self._views.pop(pod_class.number, None)
        if view is None:
            view = self._new_view(pod_class)
        self._views[pod_class.number] = view  # the last entry of the dict is the most recently used
        nodes = self._nodes
        if view.label_cursor != nodes.relabelled.end or (
            pod_class.allocators and view.allocator_cursors != self._allocator_ends(pod_class)
        ):
            self._refresh_mask(view)
        if scored and view.cursor != nodes.changes.end:
            self._refresh_score(view)
        if pod_class.affinity.restricts or view.constraints is not None:
            self._update_constraints(view)
        return view

    def allocators_of(self, pod_class: ClassRecord) -> list[NodeAllocator]:
        """Return the node allocators that concern the class and belong to the policy."""
        return [allocator for allocator in pod_class.allocators if allocator.name in self._allocators]

    def copies(self, view: ClassView, rows: Rows, most: bool = False) -> IntArray:
        """Return int64[rows]: the number of copies that fit one after the other; with `most` an upper bound over
        all choices of the allocators.
        """
        pod_class = view.pod_class
        if isinstance(rows, slice):
            idle = self._nodes.idle[pod_class.columns][:, rows]
        else:
            idle = self._nodes.idle.take(rows, axis=1).take(pod_class.columns, axis=0)
        fits: IntArray = (idle // pod_class.amounts[:, None]).min(axis=0)
        np.minimum(np.maximum(fits, 0, out=fits), UNLIMITED_COPIES, out=fits)
        return self._limited(view, rows, fits, most)

    def limits_by_amounts(self, pod_class: ClassRecord) -> bool:
        """Return whether only amounts limit the copies of the class on a row that has room for one."""
        reserved = self.reserved is not None and self.reserved.active
        return not self._limits and not reserved and self.current(pod_class, scored=False).limit is None

    def _limited(self, view: ClassView, rows: Rows, fits: IntArray, most: bool) -> IntArray:
        """Return int64[rows]: the copies of those that `fits` by amounts that everything else permits."""
        pod_class = view.pod_class
        for plugin in self._limits:
            fits = np.minimum(fits, plugin.max_copies(pod_class, self._nodes, rows))
        if self._nodes.maintenance.active:
            fits = np.where(self.in_time(pod_class, rows), fits, 0)
        if self.reserved is not None and self.reserved.active:
            # Reserved room only takes copies off, and most queries are for pods that fit nowhere.
            fits = self.reserved.limit_copies(pod_class, rows, fits) if np.count_nonzero(fits) else fits
        elif pod_class.spec.reservation is not None and pod_class.spec.reservation.inside:
            # The pod can use only the room of its reservation, which does not exist.
            fits = np.zeros_like(fits)
        limit = view.most if most and view.most is not None else view.limit
        return fits if limit is None else np.minimum(fits, limit[rows])

    def in_time(self, pod_class: ClassRecord, rows: Rows) -> BoolArray:
        """Return bool[rows]: the nodes where a pod that is placed now ends before their maintenance."""
        return self._nodes.maintenance.open_to(pod_class.spec.run_limit, pod_class.spec.tolerations, rows)

    def copy_scores(self, view: ClassView, rows: RowArray, deepest: int) -> FloatArray:
        """Return float64[rows, copies]: the score of the j-th copy on each row, without rules about other pods."""
        copies = np.arange(1, deepest + 1, dtype=np.int64)
        total = np.zeros((len(rows), deepest))
        load = Load(view.pod_class, self._nodes, rows, copies)
        for scorer in self._scorers:
            total += scorer.score(view.pod_class, load)
        if view.preference is not None:
            total += view.preference.take(rows)[:, None]
        return quantised(total) if view.quantised else total

    def _new_view(self, pod_class: ClassRecord) -> ClassView:
        capacity = self._nodes.capacity
        if len(self._views) >= max(_FEWEST_VIEWS, _VIEW_BYTES // (32 * capacity)):
            del self._views[next(iter(self._views))]
        return ClassView(pod_class, capacity)

    def _allocator_ends(self, pod_class: ClassRecord) -> tuple[int, ...]:
        return (
            tuple(allocator.changes.end for allocator in self.allocators_of(pod_class))
            if pod_class.allocators
            else ()
        )

    def _update_constraints(self, view: ClassView) -> None:
        """Update the constraints by other pods."""
        nodes, pod_class = self._nodes, view.pod_class
        if not pod_class.affinity.restricts or self._rules == NO_RULES:
            view.constraints = None
            return
        affinity_state = pod_class.affinity_state(nodes.affinity)
        if view.constraints is None or not view.constraints.holds(affinity_state, view.static):
            view.constraints = InterPodConstraints(nodes, pod_class, affinity_state, self._rules, view.static)
            view.peer_stamp = ()
            if view.constraints.has_preferences and not view.quantised:
                view.quantised, view.cursor = True, -1
                self._refresh_score(view)

    def _refresh_mask(self, view: ClassView) -> None:
        nodes = self._nodes
        stale = self._stale_eligibility(view)
        if stale is None:
            view.static = self._filter(view.pod_class, slice(None))
            # The table can have grown since the limits were computed.
            view.limit = None
            self._apply_allocators(view, slice(None))
            view.base = np.full(nodes.capacity, NOWHERE)
            view.copies, view.cursor = None, -1
            view.preference = self._preference(view)
        else:
            # These rows have also changed in the table, so their scores and copies are updated later.
            rows = np.array(sorted(set(stale)), dtype=np.intp)
            view.static[rows] = self._filter(view.pod_class, rows)
            self._apply_allocators(view, rows)
            self._update_preference(view)
            self._score_rows(view, rows)
            if view.copies is not None and view.limit is not None:
                self.recount(view, view.copies, rows)
        view.label_cursor, view.allocator_cursors = nodes.relabelled.end, self._allocator_ends(view.pod_class)

    def _apply_allocators(self, view: ClassView, rows: Rows) -> None:
        """Compute `allowed` on some rows from `static` and the limits of the allocators."""
        allocators = self.allocators_of(view.pod_class)
        if not allocators:
            view.allowed, view.limit = view.static, None
            return
        if view.limit is None:
            rows, view.allowed = slice(None), view.static.copy()
            view.limit = np.zeros(len(view.static), dtype=np.int64)
            view.undercounting = tuple(
                allocator for allocator in allocators if allocator.undercounts(view.pod_class.spec)
            )
            view.most = view.limit.copy() if view.undercounting else None
        limit = np.full(view.limit[rows].shape, UNLIMITED_COPIES, dtype=np.int64)
        for allocator in allocators:
            limit = np.minimum(limit, allocator.copies(view.pod_class.spec, rows))
        view.limit[rows] = limit
        if view.most is not None:
            exact = [allocator for allocator in allocators if allocator not in view.undercounting]
            most = np.full(view.limit[rows].shape, UNLIMITED_COPIES, dtype=np.int64)
            for allocator in exact:
                most = np.minimum(most, allocator.copies(view.pod_class.spec, rows))
            for allocator in view.undercounting:
                most = np.minimum(most, allocator.most_copies(view.pod_class.spec, rows))
            view.most[rows] = most
        view.allowed[rows] = view.static[rows] & (limit > 0)

    def _stale_eligibility(self, view: ClassView) -> array[int] | None:
        """Return the rows on which the class's eligibility may have changed; None for all."""
        nodes = self._nodes
        if view.label_cursor < 0 or len(view.base) != nodes.capacity:
            return None
        limit = nodes.capacity // _RESCORE_PART
        stale = nodes.relabelled.since(view.label_cursor, limit)
        for allocator, cursor in zip(self.allocators_of(view.pod_class), view.allocator_cursors, strict=True):
            changed = allocator.changes.since(cursor, limit)
            if stale is None or changed is None:
                return None
            stale = stale + changed
        return stale

    def _update_preference(self, view: ClassView) -> None:
        """Update the preferences. They are normalised over all eligible nodes, so one relabelled node can shift all
        scores.
        """
        former, new = view.preference, self._preference(view)
        if former is None and new is None:
            return
        view.preference = new
        zeros = np.zeros(self._nodes.capacity)
        shifted = np.flatnonzero((zeros if former is None else former) != (zeros if new is None else new))
        if len(shifted) * _RESCORE_PART > self._nodes.capacity:
            view.cursor = -1
        elif len(shifted):
            self._score_rows(view, shifted)

    def lasting(self, pod_class: ClassRecord) -> BoolArray:
        """Return bool[N]: the rows that are eligible at some time (no back-off, no hours of the day)."""
        mask: BoolArray = self._nodes.alive.copy()
        for plugin in self._filters:
            if not overrides(plugin, "time_key"):
                mask &= plugin.filter(pod_class, self._nodes, slice(None))
        return mask

    def _filter(self, pod_class: ClassRecord, rows: Rows) -> BoolArray:
        mask: BoolArray = self._nodes.alive[rows].copy()
        for plugin in self._filters:
            mask &= plugin.filter(pod_class, self._nodes, rows)
        return mask

    def _preference(self, view: ClassView) -> FloatArray | None:
        total: FloatArray | None = None
        for plugin in self._preferences:
            part = plugin.static_score(view.pod_class, self._nodes, view.allowed)
            if part is not None:
                total = part if total is None else total + part
        return total

    def stated_preference(self, pod_class: ClassRecord) -> FloatArray | None:
        """Return the preferences without the parts that neither pods nor nodes state; None without any."""
        total = self.complete(pod_class).preference
        for plugin in self._preferences if total is not None else ():
            part = plugin.default_score(pod_class, self._nodes) if plugin.default_score is not None else None
            total = total if part is None or total is None else total - part
        return total

    def _refresh_score(self, view: ClassView) -> None:
        nodes = self._nodes
        afresh = view.cursor < 0 or self.single
        changed = None if afresh else nodes.changes.since(view.cursor, nodes.capacity // _RESCORE_PART)
        if changed is None:
            rows = np.flatnonzero(view.allowed)
        else:
            rows = np.array(changed, dtype=np.intp)
            # No other rows have scores.
            rows = rows[view.allowed.take(rows)]
        copies = view.copies if view.room_cursor == nodes.changes.end else None
        self._score_rows(view, rows, copies.take(rows) > 0 if copies is not None else None)
        view.cursor = nodes.changes.end

    def _score_rows(self, view: ClassView, rows: RowArray, fits: BoolArray | None = None) -> None:
        """Compute the scores of some rows, on which one copy `fits` (None: unknown); repeated rows are harmless."""
        pod_class, nodes = view.pod_class, self._nodes
        single = len(rows) == 1
        if single and not self._has_idle_amounts(pod_class, int(rows[0])):
            view.base[rows] = NOWHERE
            return
        if fits is None:
            fits = self._fits(view, rows, view.allowed.take(rows) if single else self._fits_amounts(view, rows))
        if not np.count_nonzero(fits):
            view.base[rows] = NOWHERE
            return
        load = Load(pod_class, nodes, rows)
        total: FloatArray | float = 0.0
        for scorer in self._scorers:
            total = total + scorer.score(pod_class, load)
        if view.preference is not None:
            total = total + view.preference.take(rows)
        if view.quantised:
            total = quantised(np.asarray(total))
        view.base[rows] = np.where(fits, total, NOWHERE)

    def _fits_amounts(self, view: ClassView, rows: RowArray) -> BoolArray:
        """Return bool[rows]: the allowed rows with the idle amounts of one copy."""
        idle, fits = self._nodes.idle, view.allowed.take(rows)
        for column, amount in view.pod_class.demand:
            fits &= idle[column].take(rows) >= amount
        return fits

    def _fits(self, view: ClassView, rows: RowArray, fits: BoolArray) -> BoolArray:
        """Return bool[rows]: those of `fits`, which have the amounts, that everything else permits."""
        pod_class, nodes = view.pod_class, self._nodes
        for plugin in self._limits:
            fits &= plugin.max_copies(pod_class, nodes, rows) > 0
        if not np.count_nonzero(fits):
            return fits
        if nodes.maintenance.active:
            fits &= self.in_time(pod_class, rows)
        if self.reserved is not None and self.reserved.active:
            fits &= self.reserved.limit_copies(pod_class, rows, fits.astype(np.int64)) > 0
        elif pod_class.spec.reservation is not None and pod_class.spec.reservation.inside:
            fits = np.zeros_like(fits)
        return fits

    def _has_idle_amounts(self, pod_class: ClassRecord, row: int) -> bool:
        """Return whether the idle amounts of a row are enough for one copy."""
        idle = self._nodes.idle
        return all(idle[column, row] >= amount for column, amount in pod_class.demand)

    def recount_row(self, view: ClassView, copies: IntArray, row: int) -> None:
        """Count the copies on one row again.

        After one event one row has changed, and most waiting classes fit there neither before nor after.
        """
        idle, count = self._nodes.idle, 0
        if view.allowed[row]:
            count = min([int(idle[column, row]) // amount for column, amount in view.pod_class.demand])
        if count > 0:
            rows, fits = np.array([row], dtype=np.intp), np.array([min(count, UNLIMITED_COPIES)], dtype=np.int64)
            count = int(self._limited(view, rows, fits, most=True)[0])
        count = max(count, 0)
        view.room += count - int(copies[row])
        copies[row] = count

    def recount(self, view: ClassView, copies: IntArray, rows: RowArray) -> None:
        """Count the copies on some distinct rows again."""
        counts = np.where(view.allowed[rows], self.copies(view, rows, most=True), 0)
        view.room += int(counts.sum()) - int(copies[rows].sum())
        copies[rows] = counts
