"""Free amounts of every node over the time line, in exact integers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.cluster.state import ClusterState
from phalanx.scheduling.reservations.copy_counts import CopyCounts, CountArray, as_counts, request_key
from phalanx.scheduling.reservations.pod_ends import PodEnds
from phalanx.scheduling.reservations.timeline import (
    FOREVER,
    HORIZON,
    Timeline,
    closed_slots,
    most_moments,
    timeline,
)
from phalanx.scheduling.reservations.window import RowArray, Window

# If a larger part of the rows has changed, a full recount is cheaper.
_REBUILD_PART = 4
# Growth of copies that no cluster reaches.
_MORE_THAN_ANY = 2**32
# Amount taken off a row in maintenance: more than any node has.
_CLOSED = 2**52
# Number of amounts of one resource up to which the order of divisions costs more than the divisions.
_FEW_CELLS = 4096
# Number of (resource, end) pairs for which the least free amounts of each row are cached.
_MOST_LEAST = 256


class FutureMatrix:
    """free[t, n] per resource: free amounts of row n from edge t to the next, without reserved windows.

    The matrix is updated row by row while the time line stays, for queried resources only. Amounts of an open
    transaction count as pods without end. A row in maintenance has nothing free. Rounding never adds free room.
    """

    def __init__(self, state: ClusterState, start_delay: int = 0) -> None:
        self._state = state
        self._now = 0
        self.line = Timeline((0,), True)
        self._extent = 0
        self._cursor = self._time_cursor = -1
        # Rows with ends that were read after the last draw.
        self._undrawn: set[int] = set()
        self.pod_ends = PodEnds(state, start_delay)
        self._width = 0
        self._free: dict[int, IntArray] = {}
        # Copies by request: classes that differ in labels or limits only have the same ones.
        self._counts: dict[bytes, CopyCounts] = {}
        # Growth with which new counts begin.
        self._base = 0
        # Windows added and removed without take() and give_back() since the last draw.
        self._replaced: list[Window] = []
        self._windows: dict[int, dict[int, Window]] = {}
        self._standing: dict[int, Window] = {}
        self._redraw = False
        self._closed_version = -1
        # Number of draws after which the growth of copies is not comparable with that of before.
        self.drawn = 0
        # Number of changes, and int64[N]: number of the last change of each row.
        self._changes = 0
        self._changed_at: IntArray = np.zeros(0, dtype=np.int64)
        # (resource, slot) -> change number, and int64[N]: least free amounts from now to that slot.
        self._least: dict[tuple[int, int], tuple[int, IntArray]] = {}

    # -- following the cluster ------------------------------------------------------------------------------

    def advance(self, now: int, windows: Iterable[Window]) -> None:
        """Update the matrix to `now` with all reserved `windows`."""
        self._now = self.pod_ends.now = now
        self._set_windows({id(window): window for window in windows})
        changed = self._changed_rows()
        # The expected end of an overdue pod moves on with the time.
        late: set[int] = set()
        if min(self.pod_ends.moments, default=FOREVER) <= now:
            late = {row for end, rows in self.pod_ends.moments.items() if end <= now for row in rows}
        self.pod_ends.read(None if changed is None else sorted({*changed, *late}), now)
        self._draw(changed, late)

    def read_ends(self) -> None:
        """Read the ends of pods that were placed since the last update; the amounts are updated at the next one."""
        changed = self._changed_rows()
        if changed is None:
            self._cursor = -1
            return
        self.pod_ends.read(changed, self._now)
        self._undrawn.update(changed)

    def _set_windows(self, windows: dict[int, Window]) -> None:
        for number in self._standing.keys() - windows.keys():
            self._index_window(self._standing[number], False)
            self._replaced.append(self._standing[number])
        for number in windows.keys() - self._standing.keys():
            self._index_window(windows[number], True)
            self._replaced.append(windows[number])
        self._standing = windows

    def _index_window(self, window: Window, on: bool) -> None:
        for row in window.rows.tolist():
            if on:
                self._windows.setdefault(row, {})[id(window)] = window
            else:
                self._windows.get(row, {}).pop(id(window), None)

    @property
    def current(self) -> bool:
        """Whether the matrix includes all changes of nodes."""
        return self.times_current and self._cursor == self._state.nodes.changes.end

    @property
    def times_current(self) -> bool:
        """Whether the matrix includes all changes of pods' ends."""
        return self._time_cursor == self._state.pods.retimed.end

    def skip(self) -> None:
        """Skip the pending changes of nodes: they do not affect the matrix."""
        self._cursor = self._state.nodes.changes.end

    def update(self) -> None:
        """Update the matrix with the placements since the last update."""
        closed = self._closed_version != self._state.nodes.maintenance.version
        same = self.current and self._width == len(self._state.space)
        if same and not (self._redraw or closed or self._undrawn):
            return
        changed = self._changed_rows()
        self.pod_ends.read(changed, self._now)
        self._draw(changed)

    def _draw(self, changed: list[int] | None, late: Iterable[int] = ()) -> None:
        """Rebuild the time line, and the free amounts of queried resources where they changed."""
        kept = {when for window in self._standing.values() for when in (window.start, window.end)}
        extent = self._state.nodes.extent
        maintenance = self._state.nodes.maintenance
        edges = (when for closure in maintenance.closures for when in (closure.start, closure.end))
        former = self.line
        line = timeline(self._now, self.pod_ends.moments, kept, extent, former, edges)
        comparable = changed is not None and self._extent == extent
        comparable &= self._closed_version == maintenance.version
        reshaped = line is not former and line.shape != former.shape
        # A new object shows the future of accounts that it is outdated too.
        self.line = line if comparable or not line.exact else Timeline(line.edges, True)
        self._extent, self._redraw, self._closed_version = extent, False, maintenance.version
        replaced, self._replaced = self._replaced, []
        undrawn, self._undrawn = self._undrawn, set()
        if not comparable or (reshaped and (maintenance.active or not former.can_carry_to(line))):
            self._free.clear()
            self._counts.clear()
            self._least.clear()
            self._changed_at = np.zeros(extent, dtype=np.int64)
            self.drawn += 1
            return
        assert changed is not None
        rows = {*changed, *late, *undrawn}
        for window in replaced:
            rows.update(window.rows.tolist())
        if reshaped:
            rows |= self._carry(former, line)
        self._recount(sorted(rows))

    def _carry_counts(self, slots: RowArray, comparable: bool) -> None:
        """Bring the counts that were queried since the last time to a new time line; forget the others."""
        unused = [key for key, counts in self._counts.items() if not counts.queried]
        for key in unused:
            del self._counts[key]
        # Counts that begin anew have grown by more than anything measured before.
        self._base += _MORE_THAN_ANY if unused else 0
        for counts in self._counts.values():
            counts.carry(slots, comparable)
        self._least.clear()

    def _carry(self, former: Timeline, line: Timeline) -> set[int]:
        """Bring all amounts to a new time line; return the rows that are to be recounted.

        Amounts of other rows change at moments that both time lines have."""
        slots = line.slots_in(former)
        for column, free in self._free.items():
            self._free[column] = free[slots]
        # On a grid, a window can become shorter by a new edge, so that a unit fits without growth of the room.
        comparable = former.exact and line.exact
        self._carry_counts(slots, comparable)
        self.drawn += not comparable
        if comparable:
            # Up to the horizon every moment is an edge; the rows of moments that have passed are recounted anyway.
            horizon = former.edges[0] + HORIZON
            rows = {row for moment, by_row in self.pod_ends.moments.items() if moment > horizon for row in by_row}
        else:
            moments = np.fromiter(self.pod_ends.moments, dtype=np.int64, count=len(self.pod_ends.moments))
            moved = moments[former.rounded(moments) != line.rounded(moments)]
            rows = {row for moment in moved.tolist() for row in self.pod_ends.moments[moment]}
        edges = {*former.edges}
        for window in self._standing.values():
            # A window that has ended is still charged to the first slot.
            if window.end <= self._now or (window.start > former.edges[0] and window.start not in edges):
                rows.update(window.rows.tolist())
            elif window.end < FOREVER and window.end not in edges:
                # It was charged up to the next edge of the former time line.
                following = bisect_right(former.edges, window.end)
                begin = bisect_left(line.edges, window.end)
                end = len(line)
                if following < len(former.edges):
                    end = bisect_left(line.edges, former.edges[following])
                self._add(window, begin, end, 1)
                for counts in self._counts.values():
                    counts.outdate(window.rows)
        return rows

    def _changed_rows(self) -> list[int] | None:
        self.pod_ends.follow()
        nodes = self._state.nodes
        if self._width != len(self._state.space):
            self._width, self._cursor = len(self._state.space), -1
        limit, retimed = max(64, nodes.extent // _REBUILD_PART), self._state.pods.retimed
        changed = nodes.changes.since(self._cursor, limit)
        retimed_rows = retimed.since(self._time_cursor, limit)
        self._cursor, self._time_cursor = nodes.changes.end, retimed.end
        if changed is None or retimed_rows is None:
            return None
        return sorted({row for row in (*changed, *retimed_rows) if row >= 0})

    def _recount(self, rows: Sequence[int]) -> None:
        chosen = np.array([row for row in rows if row < self._extent], dtype=np.intp)
        if not len(chosen):
            return
        self._mark_changed(chosen)
        for free, profile in zip(self._free.values(), self._profiles([*self._free], chosen), strict=True):
            free[:, chosen] = profile
        for counts in self._counts.values():
            counts.outdate(chosen)

    def _profiles(self, columns: Sequence[int], rows: RowArray) -> list[IntArray]:
        """Return int64[T, rows] of each resource: its free amounts on the rows."""
        if len(rows) == 1:
            return [free[:, None] for free in self._row_profiles(columns, int(rows[0]))]
        profiles = np.zeros((len(columns), len(self.line), len(rows)), dtype=np.int64)
        if not len(columns):
            return []
        ending = [
            (at, *self.pod_ends.by_row[row]) for at, row in enumerate(rows.tolist()) if row in self.pod_ends.by_row
        ]
        if ending:
            ends = np.concatenate([pod_ends for _, pod_ends, _ in ending])
            usages = np.concatenate([pod_usages for _, _, pod_usages in ending])
            where = np.repeat([at for at, _, _ in ending], [len(pod_ends) for _, pod_ends, _ in ending])
            slots = np.searchsorted(self.line.moments, ends, side="left")
            inside = slots < len(self.line)
            usages, slots, where = usages[inside], slots[inside], where[inside]
            for column, free in zip(columns, profiles, strict=True):
                np.add.at(free, (slots, where), usages[:, column])
        np.cumsum(profiles, axis=1, out=profiles)
        profiles += self._state.nodes.idle[columns][:, None, rows]
        if self._state.nodes.maintenance.active:
            profiles -= closed_slots(self.line, self._state.nodes.maintenance, rows) * _CLOSED
        if self._standing:
            place = np.full(self._extent, -1, dtype=np.intp)
            place[rows] = np.arange(len(rows), dtype=np.intp)
            for window in self._on(rows):
                begin, end = self.line.slots(window.start, window.end)
                for share in window.kept:
                    at = place[share.rows]
                    chosen = at >= 0
                    for column, free in zip(columns, profiles, strict=True):
                        if share.reserves(column):
                            free[begin:end, at[chosen]] -= share.kept(column)[chosen]
        return list(profiles)

    def _row_profiles(self, columns: Sequence[int], row: int) -> IntArray:
        """Return int64[resources, T]: the free amounts on one row, as after nearly every event."""
        profiles = np.zeros((len(columns), len(self.line)), dtype=np.int64)
        known = self.pod_ends.by_row.get(row)
        if known is not None:
            ends, usages = known
            slots = self.line.moments.searchsorted(ends)
            inside = slots < len(self.line)
            if np.count_nonzero(inside) < len(slots):
                slots, usages = slots[inside], usages[inside]
            for column, free in zip(columns, profiles, strict=True):
                np.add.at(free, slots, usages[:, column])
            np.cumsum(profiles, axis=1, out=profiles)
        profiles += self._state.nodes.idle[columns, row][:, None]
        if self._state.nodes.maintenance.active:
            closed = closed_slots(self.line, self._state.nodes.maintenance, np.array([row], dtype=np.intp))
            profiles -= closed[:, 0] * _CLOSED
        for window in self._windows.get(row, {}).values():
            begin, end = self.line.slots(window.start, window.end)
            for share in window.kept:
                (at,) = (share.rows == row).nonzero()
                for column, free in zip(columns, profiles, strict=True):
                    if len(at) and share.reserves(column):
                        free[begin:end] -= share.kept(column)[at[0]]
        return profiles

    def _on(self, rows: RowArray) -> Iterable[Window]:
        """Return the windows with room on the rows."""
        if len(rows) == self._extent:
            return self._standing.values()
        return {
            number: window for row in rows.tolist() for number, window in self._windows.get(row, {}).items()
        }.values()

    # -- windows ----------------------------------------------------------------------------------------------

    @property
    def windows(self) -> list[Window]:
        """The subtracted windows."""
        return list(self._standing.values())

    def take(self, window: Window) -> None:
        """Subtract a window. An exact time line gets its edges at the next update."""
        self._redraw |= bool(self._missing_edges(window))
        self._subtract(window)

    def _subtract(self, window: Window) -> None:
        self._standing[id(window)] = window
        self._index_window(window, True)
        self._change(window, -1)

    def reserve(self, window: Window) -> None:
        """Subtract a window that stays: an exact time line gets its edges now."""
        if missing := self._missing_edges(window):
            spans = len(self._standing) + 1 + len(self._state.nodes.maintenance.closures)
            if self._redraw or len(self.pod_ends.moments) + 2 * spans > most_moments(self._extent):
                self._redraw = True
            else:
                former, self.line = self.line, self.line.with_moments(missing)
                slots = self.line.slots_in(former)
                for column, free in self._free.items():
                    self._free[column] = free[slots]
                self._carry_counts(slots, comparable=True)
        self._subtract(window)

    def _missing_edges(self, window: Window) -> list[int]:
        """Return the ends of a window that an exact time line has no edge for."""
        edges, ends = self.line.edges, (window.start, window.end) if self.line.exact else ()
        return [when for when in ends if edges[0] < when < FOREVER and when not in edges]

    def give_back(self, window: Window) -> None:
        """Add the amounts of a window back."""
        self._standing.pop(id(window), None)
        self._index_window(window, False)
        self._change(window, 1)

    def _change(self, window: Window, sign: int) -> None:
        begin, end = self.line.slots(window.start, window.end)
        self._mark_changed(window.rows)
        self._add(window, begin, end, sign)
        for counts in self._counts.values():
            # A window that is subtracted and added back between two queries changes nothing.
            if counts.unseen.pop(id(window), None) is None:
                counts.unseen[id(window)] = window

    def _add(self, window: Window, begin: int, end: int, sign: int) -> None:
        """Add the amounts of a window to the slots from `begin` to `end`, or subtract them with `sign` -1."""
        for share in window.kept:
            rows = int(share.rows[0]) if len(share.rows) == 1 else share.rows  # a slice is several times faster
            for column, free in self._free.items():
                if share.reserves(column):
                    free[begin:end, rows] += sign * share.kept(column)

    def _mark_changed(self, rows: RowArray) -> None:
        self._changes += 1
        self._changed_at[rows[rows < len(self._changed_at)]] = self._changes

    # -- questions ---------------------------------------------------------------------------------------------

    def free(self, column: int) -> IntArray:
        """Return int64[T, N]: the free amounts of one resource."""
        free = self._free.get(column)
        if free is None:
            rows = np.arange(self._extent, dtype=np.intp)
            (free,) = self._profiles([column], rows)
            self._free[column] = free
        return free

    def copies(self, pod_class: ClassRecord) -> CountArray:
        """Return int32[T, N]: the number of copies that each row fits in each slot, without filters."""
        return self._counts_of(pod_class).copies

    def _counts_of(self, pod_class: ClassRecord) -> CopyCounts:
        """Return the counts of a class, with all changes of rows and windows."""
        key = request_key(pod_class)
        counts = self._counts.get(key)
        if counts is None:
            rows = np.arange(self._extent, dtype=np.intp)
            counts = self._counts[key] = CopyCounts(self._count(pod_class, rows), self._base)
        counts.queried = True
        while counts.unseen:
            _, window = counts.unseen.popitem()
            rows = window.rows[~counts.outdated[window.rows]]
            if len(rows):
                begin, end = self.line.slots(window.start, window.end)
                counts.replace(rows, begin, end, self._count(pod_class, rows, begin, end))
        if counts.stale:
            rows = counts.pop_outdated()
            counts.replace(rows, 0, len(self.line), self._count(pod_class, rows))
        return counts

    def grown(self, pod_class: ClassRecord) -> int:
        """Return the sum over rows of the largest growth of copies at any moment, accumulated since the last full
        recount."""
        return self._counts_of(pod_class).measure_growth()

    def room(self, pod_class: ClassRecord, rows: BoolArray) -> IntArray:
        """Return int64[T]: the number of copies that the rows bool[N] fit together in each slot."""
        return self._counts_of(pod_class).room(rows[: self._extent])

    def _count(self, pod_class: ClassRecord, rows: RowArray, begin: int = 0, end: int | None = None) -> CountArray:
        if len(rows) == self._extent and begin == 0 and end is None:
            return self._count_all(pod_class)
        fits: IntArray | None = None
        for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True):
            copies = self.free(column)[begin:end, rows] // amount
            fits = copies if fits is None else np.minimum(fits, copies, out=fits)
        assert fits is not None  # every pod takes a pod slot
        return as_counts(fits)

    def _count_all(self, pod_class: ClassRecord) -> CountArray:
        """Return int32[T, N] of all rows.

        Divisions cost the most: the scarcest resource is first, and others count on rows where they can be scarcer.
        """
        fits: CountArray | None = None
        if self._extent * len(self.line) < _FEW_CELLS:
            copies = [self.free(column) // amount for column, amount in pod_class.demand]
            return as_counts(reduce(np.minimum, copies))
        columns, amounts = pod_class.columns, pod_class.amounts
        scarcity = np.argsort(self._state.nodes.idle[columns].sum(axis=1) // amounts, kind="stable")
        for column, amount in zip(columns[scarcity].tolist(), amounts[scarcity].tolist(), strict=True):
            free = self.free(column)
            if fits is None:
                fits = as_counts(free // amount)
                continue
            scarcer = np.flatnonzero(
                self._least_free(column, len(free)) < fits.max(axis=0).astype(np.int64) * amount
            )
            if len(scarcer):
                fits[:, scarcer] = np.minimum(fits[:, scarcer], as_counts(free[:, scarcer] // amount))
        assert fits is not None  # every pod takes a pod slot
        return fits

    def copies_until(self, pod_class: ClassRecord, rows: RowArray, end: int) -> IntArray:
        """Return int64[rows]: the number of copies that each row fits from now until `end`."""
        _, last = self.line.slots(self.line.edges[0], end)
        copies = [self._least_free(column, last)[rows] // amount for column, amount in pod_class.demand]
        fewest: IntArray = reduce(np.minimum, copies)
        return np.maximum(fewest, 0)

    def _least_free(self, column: int, last: int) -> IntArray:
        """Return int64[N]: the least free amounts of one resource from now to slot `last`."""
        known = self._least.get((column, last))
        if known is None:
            if len(self._least) >= _MOST_LEAST:
                self._least.clear()
            least: IntArray = self.free(column)[:last].min(axis=0)
        else:
            since, least = known
            if since == self._changes:
                return least
            (changed,) = (self._changed_at > since).nonzero()
            if len(changed):
                least[changed] = self.free(column)[:last, changed].min(axis=0)
        self._least[column, last] = (self._changes, least)
        return least

    def copies_beside(
        self,
        pod_class: ClassRecord,
        rows: RowArray,
        start: int,
        end: int,
        lifted: Iterable[Window],
        removed: Iterable[PodRecord] = (),
    ) -> IntArray:
        """Return int64[rows]: the number of copies that each row fits over [start, end) without the `lifted`
        windows.

        Pods that a search has `removed` tentatively free their amounts from now on, and not again at their end.
        """
        first, last = self.line.slots(start, end)
        lifted = list(lifted)
        rows, places = np.unique(rows, return_inverse=True)
        freed = self._freed_twice(rows, removed)
        fewest: IntArray | None = None
        for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True):
            free = self._free_on(rows, column, first, last, lifted)
            for slot, at, usage in freed:
                free[max(slot - first, 0) :, at] -= usage[column]
            copies = free.min(axis=0) // amount
            fewest = copies if fewest is None else np.minimum(fewest, copies)
        assert fewest is not None  # every pod takes a pod slot
        fewest = np.maximum(fewest, 0)
        return fewest[places]

    def _free_on(self, rows: RowArray, column: int, first: int, last: int, lifted: Iterable[Window]) -> IntArray:
        """Return int64[slots, rows] of one resource from slot `first` to `last` without the `lifted` windows."""
        free: IntArray = self.free(column)[first:last][:, rows]
        for window in lifted:
            begin, end = (min(max(slot, first), last) - first for slot in self.line.slots(window.start, window.end))
            for share in window.kept:
                _, places, kept_places = np.intersect1d(rows, share.rows, return_indices=True)
                free[begin:end, places] += share.kept(column)[kept_places]
        return free

    def _freed_twice(self, rows: RowArray, removed: Iterable[PodRecord]) -> list[tuple[int, int, IntArray]]:
        """Return (slot of the end, place in `rows`, usage) of removed pods with a known end."""
        freed: list[tuple[int, int, IntArray]] = []
        places = {row: place for place, row in enumerate(rows.tolist())}
        for record in removed:
            place = places.get(record.row)
            if place is not None and (end := self.pod_ends.end_of(record)) < FOREVER:
                slot = int(np.searchsorted(self.line.moments, end, side="left"))
                freed.append((slot, place, record.footprint.usage))
        return freed

    def free_beside(self, column: int, first: int, last: int, lifted: Iterable[Window]) -> IntArray:
        """Return int64[slots, N] of one resource from slot `first` to `last` without the `lifted` windows."""
        free = self.free(column)[first:last].copy()
        for window in lifted:
            begin, end = (min(max(slot, first), last) - first for slot in self.line.slots(window.start, window.end))
            for share in window.kept:
                free[begin:end, share.rows] += share.kept(column)
        return free

    def overbooks(self, window: Window, rows: RowArray) -> bool:
        """Return whether one of the rows of a window is gone or overcommitted while the window lasts."""
        if (rows >= self._extent).any() or not self._state.nodes.alive[rows].all():
            return True
        begin, end = self.line.slots(window.start, window.end)
        for share in window.shares:
            on_rows = share.rows if rows is window.rows else share.rows[np.isin(share.rows, rows)]
            for column in share.pod_class.columns.tolist() if len(on_rows) else ():
                if (self.free(column)[begin:end, on_rows] < 0).any():
                    return True
        return False

    def overbooked(self) -> BoolArray:
        """Return bool[N]: the rows that are overcommitted at some moment."""
        over = np.zeros(self._extent, dtype=np.bool_)
        for free in self._free.values():
            np.logical_or(over, free.min(axis=0) < 0, out=over)
        return over
