"""Where identical pods go: one vectorised step with exactly the result of placing them one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from phalanx.cluster.allocators.base import UNLIMITED_COPIES, NodeAllocator
from phalanx.cluster.allocators.ports import PORTS
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.inter_pod_rules import NO_RULES, InterPodRules
from phalanx.scheduling.framework.load import Load
from phalanx.scheduling.framework.node_backoff import NodeBackoff
from phalanx.scheduling.framework.pipeline import Pipeline
from phalanx.scheduling.framework.plugin import Plugin, overrides
from phalanx.scheduling.placement.domain_greedy import NOWHERE, CopyScores, DomainGreedy, until_limits_grow
from phalanx.scheduling.placement.greedy import best_rows, place_greedily
from phalanx.scheduling.placement.inter_pod_constraints import (
    InterPodConstraints,
    node_domains,
    partition,
    quantised,
)

RowArray = npt.NDArray[np.intp]

# A class that lags behind by more than this part of the table is scored anew as a whole; that is cheaper.
_RESCORE_PART = 4
# Copies are placed in blocks of at most this many, which bounds the rows-by-copies score matrix. Splitting a run
# of identical pods does not change where they go.
_BLOCK = 256
# Views are kept for the classes used last, as many as fit into about this many bytes, but some in any case.
_VIEW_BYTES = 2**26
_FEWEST_VIEWS = 64
# Copies that take each other into account are placed in blocks of so many.
_SEATS = 1024


class ClassView:
    """One class against all rows: `mask` (filters), `preference` (label scores), `score` (-inf: does not fit).

    `static` is the part of `mask` that does not depend on which pods are where, `limit` how many copies the stocks
    allow (None where none concerns the class). `allowed` and `base` are `mask` and `score` without what other pods
    mean for the class, which `peering` says (None where they mean nothing). `copies` (how many fit on each row) and
    their sum `room` are kept once somebody has asked for them.
    """

    __slots__ = (
        "allowed",
        "base",
        "cls",
        "copies",
        "cursor",
        "grained",
        "label_cursor",
        "limit",
        "mask",
        "peer_stamp",
        "peering",
        "preference",
        "room",
        "room_cursor",
        "score",
        "static",
        "stock_cursors",
    )

    def __init__(self, cls: ClassRecord, capacity: int) -> None:
        self.cls = cls
        self.static: BoolArray = np.zeros(capacity, dtype=np.bool_)
        self.allowed = self.mask = self.static
        self.limit: IntArray | None = None
        self.preference: FloatArray | None = None
        self.base: FloatArray = np.full(capacity, NOWHERE)
        self.score = self.base
        self.peering: InterPodConstraints | None = None
        self.peer_stamp: tuple[int, ...] = ()
        self.grained = False
        self.copies: IntArray | None = None
        self.room = 0
        self.cursor = -1
        self.label_cursor = -1
        self.stock_cursors: tuple[int, ...] = ()
        self.room_cursor = -1


class Placer:
    """Caches a view per class and brings it up to date from the table's change logs.

    Ties go to the lowest row: the node that was seen first. `filters`, `preferences` and `scorers` are plugins
    that implement the respective extension point (filters that also implement `consents` are asked about each row
    that is chosen), `stocks` the names of those that the policy looks at, `rules`
    what it makes of other pods, `rooms` plugins that implement `room`.
    """

    def __init__(
        self,
        nodes: NodeTable,
        filters: Sequence[Plugin],
        preferences: Sequence[Plugin],
        scorers: Sequence[Plugin],
        stocks: Collection[str] = (),
        rules: InterPodRules = NO_RULES,
        rooms: Sequence[Plugin] = (),
    ) -> None:
        self._rules = rules
        self._rooms = rooms
        self._nodes = nodes
        self._filters = filters
        self._consenters = [each for each in filters if overrides(each, "pre_bind_check")]
        self._stocks = frozenset(stocks)
        self._scope: BoolArray | None = None
        self._lean: FloatArray | None = None
        self._preferences = preferences
        self._scorers = scorers
        self._wide = [each for each in scorers if overrides(each, "depends_on_other_nodes")]
        self._views: dict[int, ClassView] = {}

    def invalidate(self) -> None:
        """What filters and preferences say is different now although no node has changed."""
        self._views.clear()

    def class_view(self, cls: ClassRecord) -> ClassView:
        """The class's view, current with the table."""
        view = self._current(cls)
        peering = view.peering
        if peering is None:
            view.mask, view.score = view.allowed, view.base
            return view
        stamp = (peering.ticks, self._nodes.changes.end)
        if view.peer_stamp != stamp:
            view.mask = view.allowed & peering.open()
            points = peering.points() if peering.wishful else 0.0
            view.score = np.where(view.mask, view.base + points, NOWHERE)
            view.peer_stamp = stamp
        return view

    def _current(self, cls: ClassRecord) -> ClassView:
        """The view, current but for what other pods mean for the class."""
        view = self._views.pop(cls.number, None)
        if view is None:
            view = self._new_view(cls)
        self._views[cls.number] = view  # last in the dict: used last
        nodes = self._nodes
        if view.label_cursor != nodes.relabelled.end or view.stock_cursors != self._stock_ends(cls):
            self._refresh_mask(view)
        if view.cursor != nodes.changes.end:
            self._refresh_score(view)
        self._meet_peers(view)
        return view

    def place(self, cls: ClassRecord, count: int) -> list[int]:
        """Rows for up to `count` copies of the class, in placement order; fewer if fewer fit.

        Nothing is charged: the caller applies the rows (see `Transaction.place`) before the next call. At most
        one block is answered at a time, so a short answer of a full block does not mean that no more fit: call
        again until it is empty.
        """
        while True:
            rows = self._choose(cls, count)
            if not self._consenters:
                return rows
            refused = [row for row in dict.fromkeys(rows) if not self._consented(cls, row)]
            if not refused:
                return rows
            for row in refused:
                self._nodes.relabelled.note(row)
                self._nodes.changes.note(row)

    def _consented(self, cls: ClassRecord, row: int) -> bool:
        return all(plugin.pre_bind_check(cls, self._nodes, row) for plugin in self._consenters)

    def _choose(self, cls: ClassRecord, count: int) -> list[int]:
        view = self._current(cls)
        if count == 1 or self._single or any(stock.shared(cls.spec) for stock in self.allocators_of(cls)):
            return self._place_one(view)
        if view.peering is not None:
            return self._place_among_peers(view, view.peering, count)
        return self._place_block(view, self._in_scope(view.base[: self._nodes.extent]), min(count, _BLOCK))

    def accepts(self, cls: ClassRecord, row: int) -> bool:
        """Whether one copy fits on a row now, under every filter and with all that was placed."""
        fits = bool(self.class_view(cls).score[row] > NOWHERE) and (self._scope is None or bool(self._scope[row]))
        return fits and self._consented(cls, row)

    def open_rows(self, cls: ClassRecord) -> BoolArray:
        """bool[N]: the rows that are open to one copy, amounts and stocks aside; if there is none, those that could
        be if others left."""
        view = self._current(cls)
        found = view.static if view.peering is None else view.static & view.peering.open()
        return found if found.any() else view.static

    def _place_one(self, view: ClassView) -> list[int]:
        score = view.base if view.peering is None else self.class_view(view.cls).score
        score = self._in_scope(score[: max(1, self._nodes.extent)])
        if self._lean is not None:
            score = score + self._lean[: len(score)]
        row = int(score.argmax())
        return [row] if score[row] > NOWHERE else []

    def _place_among_peers(self, view: ClassView, peering: InterPodConstraints, count: int) -> list[int]:
        """The same where it matters which pods are where; a block may end early, before what its copies open."""
        if peering.begins:
            return self._place_one(view)
        extent = self._nodes.extent
        varying, rising = partition(peering.even, lambda each: node_domains(each.domains))
        closing, lonely = partition(peering.exclusive, node_domains)
        score = np.where(peering.open_but_for(varying, closing), view.base, NOWHERE)
        extra: FloatArray | None = None
        if peering.wishful and not peering.restless:
            extra = peering.points()
            score = score + extra
        score = self._in_scope(score[:extent])

        def limits(rows: RowArray) -> IntArray:
            return peering.limited(self._copies(view, rows), rows, rising, lonely)

        def ladder(rows: RowArray, deepest: int) -> FloatArray:
            found = self._ladder(view, rows, deepest)
            return found if extra is None else found + extra[rows, None]

        if not varying and not closing and not peering.restless:
            rows = self._place_block(view, score, min(count, _BLOCK), limits, ladder)
            return until_limits_grow(rising, rows)
        grouping = peering.grouping(varying, closing)
        seating = DomainGreedy(peering, grouping, score, limits, ladder, varying, closing, rising)
        return seating.run(min(count, _SEATS))

    @property
    def nodes(self) -> NodeTable:
        return self._nodes

    @property
    def _single(self) -> bool:
        """Whether copies have to be placed one at a time, whatever their class."""
        return self._lean is not None or any(scorer.depends_on_other_nodes for scorer in self._wide)

    @contextmanager
    def within(self, rows: BoolArray) -> Iterator[None]:
        """Places, and counts room, on these rows (bool[N]) only, and within any that are set already."""
        last, self._scope = self._scope, rows if self._scope is None else rows & self._scope
        try:
            yield
        finally:
            self._scope = last

    @contextmanager
    def with_extra_score(self, points: FloatArray | None) -> Iterator[None]:
        """Places with float[N] points more on each row, one copy at a time; None are none."""
        last, self._lean = self._lean, points
        try:
            yield
        finally:
            self._lean = last

    @property
    def scope(self) -> BoolArray | None:
        """The rows to which placements are limited now; None for all."""
        return self._scope

    def allocators_of(self, cls: ClassRecord) -> list[NodeAllocator]:
        """The stocks that concern the class and that the policy looks at."""
        return [stock for stock in cls.allocators if stock.name in self._stocks]

    def fits(self, cls: ClassRecord) -> bool:
        """Whether at least one copy of the class fits somewhere."""
        return bool(self._in_scope(self.class_view(cls).score).max() > NOWHERE)

    def total_copies(self, cls: ClassRecord) -> int:
        """How many copies of the class fit on all nodes together, if nothing else is placed; at most so many where
        it matters for the class which pods are where."""
        view, end = self._current(cls), self._nodes.changes.end
        if view.peering is not None:
            potential = self._potential(view, view.peering)
            return view.peering.most(potential if self._scope is None else np.where(self._scope, potential, 0))
        if self._scope is not None:
            return int(np.where(view.allowed & self._scope, self._copies(view, slice(None)), 0).sum())
        if view.copies is None:
            view.copies = np.where(view.allowed, self._copies(view, slice(None)), 0)
            view.room = int(view.copies.sum())
        elif view.room_cursor != end:
            changed = self._nodes.changes.since(view.room_cursor, self._nodes.capacity)
            if changed is None:
                view.copies = None
                return self.total_copies(cls)
            self._recount(view, view.copies, np.unique(np.array(changed, dtype=np.intp)))
        view.room_cursor = end
        return view.room

    def copies(self, cls: ClassRecord, rows: Rows) -> IntArray:
        """int64[rows]: how many copies each row has room for, filters aside."""
        view = self._current(cls)
        found = self._copies(view, rows)
        return found if view.peering is None else view.peering.alone(found, rows)

    def potential(self, cls: ClassRecord) -> IntArray:
        """int64[N]: how many copies of the class each row takes at most, whoever else is placed before."""
        view = self._current(cls)
        if view.peering is not None:
            return self._potential(view, view.peering)
        if self._scope is None:
            self.total_copies(cls)
            assert view.copies is not None
            return view.copies.copy()
        return np.where(view.allowed, self._copies(view, slice(None)), 0)

    def _potential(self, view: ClassView, peering: InterPodConstraints) -> IntArray:
        """Whoever is placed may open what is closed by a lack of neighbours or for evenness, nothing else."""
        open_rows = view.allowed & peering.open_whatever_comes()
        return np.where(open_rows, peering.alone(self._copies(view, slice(None)), slice(None)), 0)

    def exclusive(self, cls: ClassRecord) -> bool:
        """Whether no node takes a second copy of the class, whoever leaves."""
        if any(stock.name == PORTS for stock in self.allocators_of(cls)):
            return True
        peering = self._current(cls).peering
        return peering is not None and bool(
            (peering.alone(np.full(self._nodes.capacity, 2), slice(None)) < 2).all()
        )

    def _new_view(self, cls: ClassRecord) -> ClassView:
        capacity = self._nodes.capacity
        if len(self._views) >= max(_FEWEST_VIEWS, _VIEW_BYTES // (32 * capacity)):
            del self._views[next(iter(self._views))]
        return ClassView(cls, capacity)

    def _copies(self, view: ClassView, rows: Rows) -> IntArray:
        cls = view.cls
        idle = self._nodes.idle[cls.columns][:, rows]
        fits: IntArray = (idle // cls.amounts[:, None]).min(axis=0).clip(0, UNLIMITED_COPIES)
        for plugin in self._rooms:
            fits = np.minimum(fits, plugin.max_copies(cls, self._nodes, rows))
        return fits if view.limit is None else np.minimum(fits, view.limit[rows])

    def _in_scope(self, score: FloatArray) -> FloatArray:
        return score if self._scope is None else np.where(self._scope[: len(score)], score, NOWHERE)

    def _stock_ends(self, cls: ClassRecord) -> tuple[int, ...]:
        return tuple(stock.changes.end for stock in self.allocators_of(cls)) if cls.allocators else ()

    def _place_block(
        self,
        view: ClassView,
        score: FloatArray,
        count: int,
        limits: Callable[[RowArray], IntArray] | None = None,
        ladder: CopyScores | None = None,
    ) -> list[int]:
        candidates = best_rows(score, count)
        if not len(candidates):
            return []
        copies = np.minimum(self._copies(view, candidates) if limits is None else limits(candidates), count)
        deepest = int(copies.max())
        if deepest == 1:
            order = np.lexsort((candidates, -score[candidates]))
            return [int(row) for row in candidates[order[:count]]]
        steps = self._ladder(view, candidates, deepest) if ladder is None else ladder(candidates, deepest)
        return place_greedily(candidates.tolist(), copies.tolist(), steps.tolist(), count)

    def _ladder(self, view: ClassView, rows: RowArray, deepest: int) -> FloatArray:
        """[rows, copies]: the score of the j-th copy on each row, what other pods mean for it aside."""
        copies = np.arange(1, deepest + 1, dtype=np.int64)
        total = np.zeros((len(rows), deepest))
        load = Load(view.cls, self._nodes, rows, copies)
        for scorer in self._scorers:
            total += scorer.score(view.cls, load)
        if view.preference is not None:
            total += view.preference[rows, None]
        return quantised(total) if view.grained else total

    def _meet_peers(self, view: ClassView) -> None:
        """Brings what other pods mean for the class up to date."""
        nodes, cls = self._nodes, view.cls
        if not cls.affinity.restricts or self._rules == NO_RULES:
            view.peering = None
            return
        bearing = cls.affinity_state(nodes.affinity)
        if view.peering is None or not view.peering.holds(bearing, view.static):
            view.peering = InterPodConstraints(nodes, cls, bearing, self._rules, view.static)
            view.peer_stamp = ()
            if view.peering.wishful and not view.grained:
                view.grained, view.cursor = True, -1
                self._refresh_score(view)

    def _refresh_mask(self, view: ClassView) -> None:
        nodes = self._nodes
        stale = self._stale_eligibility(view)
        if stale is None:
            view.static = self._filter(view.cls, slice(None))
            self._ask_stocks(view, slice(None))
            view.base = np.full(nodes.capacity, NOWHERE)
            view.copies, view.cursor = None, -1
            view.preference = self._preference(view)
        else:
            # These rows are among the changed ones too, so their scores and copies follow by themselves.
            rows = np.unique(np.array(stale, dtype=np.intp))
            view.static[rows] = self._filter(view.cls, rows)
            self._ask_stocks(view, rows)
            self._renew_preference(view)
            self._score_rows(view, rows)
            if view.copies is not None and view.limit is not None:
                self._recount(view, view.copies, rows)
        view.label_cursor, view.stock_cursors = nodes.relabelled.end, self._stock_ends(view.cls)

    def _ask_stocks(self, view: ClassView, rows: Rows) -> None:
        """Puts together `allowed` on some rows from `static` and what the stocks allow there."""
        stocks = self.allocators_of(view.cls)
        if not stocks:
            view.allowed, view.limit = view.static, None
            return
        if view.limit is None:
            rows, view.allowed = slice(None), view.static.copy()
            view.limit = np.zeros(len(view.static), dtype=np.int64)
        limit = np.full(view.limit[rows].shape, UNLIMITED_COPIES, dtype=np.int64)
        for stock in stocks:
            limit = np.minimum(limit, stock.copies(view.cls.spec, rows))
        view.limit[rows] = limit
        view.allowed[rows] = view.static[rows] & (limit > 0)

    def _stale_eligibility(self, view: ClassView) -> list[int] | None:
        """The rows on which the class's eligibility may have changed; None for all."""
        nodes = self._nodes
        if view.label_cursor < 0 or len(view.base) != nodes.capacity:
            return None
        limit = nodes.capacity // _RESCORE_PART
        stale = nodes.relabelled.since(view.label_cursor, limit)
        for stock, cursor in zip(self.allocators_of(view.cls), view.stock_cursors, strict=True):
            changed = stock.changes.since(cursor, limit)
            if stale is None or changed is None:
                return None
            stale = stale + changed
        return stale

    def _renew_preference(self, view: ClassView) -> None:
        """Preferences are normalised over all eligible nodes: one relabelled node may shift all, or none."""
        last, new = view.preference, self._preference(view)
        if last is None and new is None:
            return
        view.preference = new
        nothing = np.zeros(self._nodes.capacity)
        shifted = np.flatnonzero((nothing if last is None else last) != (nothing if new is None else new))
        if len(shifted) * _RESCORE_PART > self._nodes.capacity:
            view.cursor = -1
        elif len(shifted):
            self._score_rows(view, shifted)

    def _filter(self, cls: ClassRecord, rows: Rows) -> BoolArray:
        mask: BoolArray = self._nodes.alive[rows].copy()
        for plugin in self._filters:
            mask &= plugin.filter(cls, self._nodes, rows)
        return mask

    def _preference(self, view: ClassView) -> FloatArray | None:
        total: FloatArray | None = None
        for plugin in self._preferences:
            part = plugin.static_score(view.cls, self._nodes, view.allowed)
            if part is not None:
                total = part if total is None else total + part
        return total

    def _refresh_score(self, view: ClassView) -> None:
        nodes = self._nodes
        afresh = view.cursor < 0 or any(scorer.depends_on_other_nodes for scorer in self._wide)
        changed = None if afresh else nodes.changes.since(view.cursor, nodes.capacity // _RESCORE_PART)
        rows = np.flatnonzero(view.allowed) if changed is None else np.array(changed, dtype=np.intp)
        self._score_rows(view, rows)
        view.cursor = nodes.changes.end

    def _score_rows(self, view: ClassView, rows: RowArray) -> None:
        """Scores some rows (repeats are harmless)."""
        cls, nodes = view.cls, self._nodes
        fits = (nodes.idle.take(rows, axis=1) >= cls.min_idle).all(axis=0)
        fits &= view.allowed.take(rows)
        for plugin in self._rooms:
            fits &= plugin.max_copies(cls, nodes, rows) > 0
        load = Load(cls, nodes, rows)
        total: FloatArray | float = 0.0
        for scorer in self._scorers:
            total = total + scorer.score(cls, load)
        if view.preference is not None:
            total = total + view.preference.take(rows)
        if view.grained:
            total = quantised(np.asarray(total))
        view.base[rows] = np.where(fits, total, NOWHERE)

    def _recount(self, view: ClassView, copies: IntArray, rows: RowArray) -> None:
        """Counts the copies on some (distinct) rows again."""
        found = np.where(view.allowed[rows], self._copies(view, rows), 0)
        view.room += int(found.sum()) - int(copies[rows].sum())
        copies[rows] = found


def build_placer(pipeline: Pipeline, nodes: NodeTable, backoff: NodeBackoff | None = None) -> Placer:
    """The placer that asks the plugins of a policy."""
    for plugin in pipeline.plugins("configure"):
        try:
            plugin.configure(nodes, backoff if backoff is not None else NodeBackoff())
        except Exception as error:
            raise PolicyError(f"plugin {plugin.name} at configure: {type(error).__name__}: {error}") from error
    filters, preferences, scorers = (pipeline.plugins(point) for point in ("filter", "static_score", "score"))
    return Placer(
        nodes,
        filters,
        preferences,
        scorers,
        pipeline.stocks,
        pipeline.inter_pod_rules,
        pipeline.plugins("max_copies"),
    )
