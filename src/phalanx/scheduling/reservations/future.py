"""Free amounts of every node over the time line, in exact integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey
from phalanx.scheduling.reservations.pod_ends import latest_end
from phalanx.scheduling.reservations.timeline import FOREVER, Timeline, timeline
from phalanx.scheduling.reservations.window import RowArray, Window

# If a larger part of the rows has changed, a full recount is cheaper.
_REBUILD_PART = 4
CountArray = npt.NDArray[np.int32]
"""Numbers of copies: half as wide as amounts, since each class has one for every slot and row."""

_MOST_COPIES = 2**31 - 1
# Amount taken off a row in maintenance: more than any node has.
_CLOSED = 2**52
# Number of (resource, end) pairs for which the least free amounts of each row are cached.
_MOST_LEAST = 256


class FutureMatrix:
    """free[t, n] per resource: free amounts of row n from edge t to the next, without reserved windows.

    The matrix is updated row by row while the time line stays, for queried resources only. Amounts of an open
    transaction count as pods without end. A row in maintenance has nothing free. Rounding never adds free room.
    """

    def __init__(self, state: ClusterState, start_delay: int = 0) -> None:
        self._state = state
        self._start_delay = start_delay
        self._now = 0
        self.line = Timeline((0,), True)
        self._extent = 0
        self._cursor = self._time_cursor = -1
        # Row -> ends int64[P] and amounts int64[P, R] of its pods.
        self._ends: dict[int, tuple[IntArray, IntArray]] = {}
        # Row -> (end, gang or uid) of its pods with a known end.
        self._leaving: dict[int, list[tuple[int, GangKey | str]]] = {}
        # int64[N]: pods without a known end on each row, without DaemonSet and static pods.
        self.endless: IntArray = np.zeros(0, dtype=np.int64)
        # Moment -> number of pods that end then.
        self._moments: dict[int, int] = {}
        self._width = 0
        self._free: dict[int, IntArray] = {}
        self._copies: dict[int, tuple[ClassRecord, CountArray]] = {}
        # Class -> windows added or removed since its copies were counted, and bool[N] of its outdated rows.
        self._unseen: dict[int, dict[int, Window]] = {}
        self._outdated: dict[int, BoolArray] = {}
        # Class -> queried rows, and the sum of copies on them at each moment.
        self._rooms: dict[int, tuple[BoolArray, IntArray]] = {}
        self._windows: dict[int, dict[int, Window]] = {}
        self._standing: dict[int, Window] = {}
        self._redraw = False
        self._closed_version = -1
        # Number of full recounts.
        self.drawn = 0
        # Number of changes, and int64[N]: number of the last change of each row.
        self._changes = 0
        self._changed_at: IntArray = np.zeros(0, dtype=np.int64)
        # (resource, slot) -> change number, and int64[N]: least free amounts from now to that slot.
        self._least: dict[tuple[int, int], tuple[int, IntArray]] = {}
        self._growth: dict[int, _Growth] = {}
        #: Returns the latest end of a pod for another reason than its run-time limit; FOREVER for none.
        self.leaves_by: Callable[[PodRecord], int] = _never

    # -- following the cluster ------------------------------------------------------------------------------

    def advance(self, now: int, windows: Iterable[Window]) -> None:
        """Update the matrix to `now` with all reserved `windows`."""
        self._now = now
        self._set_windows({id(window): window for window in windows})
        changed = self._changed_rows()
        # The expected end of an overdue pod moves on with the time.
        over = {end for end in self._moments if end <= now}
        late = [row for row, (ends, _) in self._ends.items() if not over.isdisjoint(ends.tolist())] if over else []
        self._read(changed, late)
        self._draw(changed, late)

    def _set_windows(self, windows: dict[int, Window]) -> None:
        for number in self._standing.keys() - windows.keys():
            self._index_window(self._standing[number], False)
        for number in windows.keys() - self._standing.keys():
            self._index_window(windows[number], True)
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
        if self.current and self._width == len(self._state.space) and not self._redraw and not closed:
            return
        changed = self._changed_rows()
        self._read(changed)
        self._draw(changed)

    def _read(self, changed: list[int] | None, late: Iterable[int] = ()) -> None:
        if len(self.endless) < self._state.nodes.capacity:
            self.endless = np.pad(self.endless, (0, self._state.nodes.capacity - len(self.endless)))
        for row in range(self._state.nodes.extent) if changed is None else sorted({*changed, *late}):
            self._read_row(row)

    def _draw(self, changed: list[int] | None, late: Iterable[int] = ()) -> None:
        """Rebuild the time line, and the free amounts of queried resources where they changed."""
        kept = {when for window in self._standing.values() for when in (window.start, window.end)}
        extent = self._state.nodes.extent
        maintenance = self._state.nodes.maintenance
        edges = (when for closure in maintenance.closures for when in (closure.start, closure.end))
        line = timeline(self._now, self._moments, kept, extent, self.line, edges)
        same = changed is not None and line.shape == self.line.shape and self._extent == extent
        same &= self._closed_version == maintenance.version
        if not same or line.edges != self.line.edges:
            self.line = line
        self._extent, self._redraw, self._closed_version = extent, False, maintenance.version
        if same:
            assert changed is not None
            self._recount(sorted({*changed, *late}))
        else:
            self._free.clear()
            self._copies.clear()
            self._rooms.clear()
            self._unseen.clear()
            self._outdated.clear()
            self._least.clear()
            self._growth.clear()
            self._changed_at = np.zeros(extent, dtype=np.int64)
            self.drawn += 1

    def _changed_rows(self) -> list[int] | None:
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

    def _read_row(self, row: int) -> None:
        former = self._ends.pop(row, None)
        self._leaving.pop(row, None)
        for end in former[0].tolist() if former is not None else ():
            count = self._moments[end] - 1
            if count:
                self._moments[end] = count
            else:
                del self._moments[end]
        ends, usages, leaving, endless = [], [], list[tuple[int, GangKey | str]](), 0
        for record in self._state.pods.on(row):
            end = latest_end(record, self._now, self._start_delay)
            if record.pod_class.spec.reservation is not None:
                end = min(end, self.leaves_by(record))
            if end == FOREVER:
                endless += not record.pod.fixture
            else:
                ends.append(end)
                usages.append(record.footprint.usage)
                leaving.append((end, record.gang.key if record.gang is not None else record.pod.uid))
                self._moments[end] = self._moments.get(end, 0) + 1
        self.endless[row] = endless
        if ends:
            amounts = usages[0][None, :] if len(usages) == 1 else np.stack(usages)
            self._ends[row] = (np.array(ends, dtype=np.int64), amounts)
            self._leaving[row] = leaving

    def _recount(self, rows: Sequence[int]) -> None:
        chosen = np.array(rows, dtype=np.intp)
        chosen = chosen[chosen < self._extent]
        if not len(chosen):
            return
        self._mark_changed(chosen)
        for column, free in self._free.items():
            free[:, chosen] = self._profile(column, chosen)
        for outdated in self._outdated.values():
            outdated[chosen] = True

    def _profile(self, column: int, rows: RowArray) -> IntArray:
        """Return int64[T, rows]: the free amounts of one resource on the rows."""
        free = np.zeros((len(self.line), len(rows)), dtype=np.int64)
        ending = [(at, *self._ends[row]) for at, row in enumerate(rows.tolist()) if row in self._ends]
        if ending:
            ends = np.concatenate([pod_ends for _, pod_ends, _ in ending])
            amounts = np.concatenate([usages[:, column] for _, _, usages in ending])
            where = np.repeat([at for at, _, _ in ending], [len(pod_ends) for _, pod_ends, _ in ending])
            slots = np.searchsorted(self.line.moments, ends, side="left")
            inside = (slots < len(free)) & (amounts != 0)
            np.add.at(free, (slots[inside], where[inside]), amounts[inside])
        np.cumsum(free, axis=0, out=free)
        free += self._state.nodes.idle[column, rows]
        if self._standing:
            place = np.full(self._extent, -1, dtype=np.intp)
            place[rows] = np.arange(len(rows), dtype=np.intp)
            for window in self._on(rows):
                begin, end = self.line.slots(window.start, window.end)
                for share in window.kept:
                    at, kept = place[share.rows], share.kept(column)
                    if kept.any():
                        free[begin:end, at[at >= 0]] -= kept[at >= 0]
        if self._state.nodes.maintenance.active:
            free -= self._closed(rows) * _CLOSED
        return free

    def _closed(self, rows: RowArray) -> BoolArray:
        """Return bool[T, rows]: the slots in which each row is in maintenance."""
        closed = np.zeros((len(self.line), len(rows)), dtype=np.bool_)
        for closure in self._state.nodes.maintenance.closures:
            begin, end = self.line.slots(closure.start, closure.end)
            if begin < end and closure.end > self.line.edges[0]:
                closed[begin:end] |= np.isin(rows, closure.rows)
        ends = self._state.nodes.maintenance.ends_of(rows)
        # A row closes from the slot in which its maintenance begins.
        first = np.searchsorted(self.line.moments, ends, side="right") - 1
        closed |= (ends < FOREVER) & (np.arange(len(closed))[:, None] >= first)
        return closed

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
        """Subtract a window."""
        self._standing[id(window)] = window
        # An exact time line needs an edge at every end of a window.
        self._redraw |= self.line.exact and any(
            self.line.edges[0] < when < FOREVER and when not in self.line.edges
            for when in (window.start, window.end)
        )
        self._index_window(window, True)
        self._change(window, -1)

    def give_back(self, window: Window) -> None:
        """Add the amounts of a window back."""
        self._standing.pop(id(window), None)
        self._index_window(window, False)
        self._change(window, 1)

    def _change(self, window: Window, sign: int) -> None:
        begin, end = self.line.slots(window.start, window.end)
        self._mark_changed(window.rows)
        for share in window.kept:
            for column, free in self._free.items():
                kept = share.kept(column)
                if kept.any():
                    free[begin:end, share.rows] += sign * kept
        for unseen in self._unseen.values():
            # A window that is subtracted and added back between two queries changes nothing.
            if unseen.pop(id(window), None) is None:
                unseen[id(window)] = window

    def _mark_changed(self, rows: RowArray) -> None:
        self._changes += 1
        self._changed_at[rows[rows < len(self._changed_at)]] = self._changes

    def _replace(self, pod_class: ClassRecord, copies: CountArray, rows: RowArray, begin: int, end: int) -> None:
        """Recount the copies on some rows, and update their sum."""
        fresh = self._count(pod_class, rows, begin, end)
        self._growth[pod_class.number].note(copies, rows)
        known = self._rooms.get(pod_class.number)
        if known is not None:
            mask, room = known
            room[begin:end] += ((fresh - copies[begin:end, rows]) * mask[rows]).sum(axis=1, dtype=np.int64)
        copies[begin:end, rows] = fresh

    # -- questions ---------------------------------------------------------------------------------------------

    def leaving(self, row: int) -> Sequence[tuple[int, GangKey | str]]:
        """Return (end, gang or uid) of the pods of a row with a known end."""
        return self._leaving.get(row, ())

    def free(self, column: int) -> IntArray:
        """Return int64[T, N]: the free amounts of one resource."""
        free = self._free.get(column)
        if free is None:
            rows = np.arange(self._extent, dtype=np.intp)
            free = self._free[column] = self._profile(column, rows)
        return free

    def copies(self, pod_class: ClassRecord) -> CountArray:
        """Return int32[T, N]: the number of copies that each row fits in each slot, without filters."""
        entry = self._copies.get(pod_class.number)
        if entry is None:
            rows = np.arange(self._extent, dtype=np.intp)
            entry = self._copies[pod_class.number] = (pod_class, self._count(pod_class, rows))
            self._unseen[pod_class.number] = {}
            self._outdated[pod_class.number] = np.zeros(self._extent, dtype=np.bool_)
            self._growth[pod_class.number] = _Growth(self._extent)
        self._catch_up(*entry)
        return entry[1]

    def _catch_up(self, pod_class: ClassRecord, copies: CountArray) -> None:
        unseen, outdated = self._unseen[pod_class.number], self._outdated[pod_class.number]
        while unseen:
            _, window = unseen.popitem()
            rows = window.rows[~outdated[window.rows]]
            if len(rows):
                self._replace(pod_class, copies, rows, *self.line.slots(window.start, window.end))
        rows = np.flatnonzero(outdated)
        if len(rows):
            outdated[rows] = False
            self._replace(pod_class, copies, rows, 0, len(self.line))

    def grown(self, pod_class: ClassRecord) -> int:
        """Return the sum over rows of the largest growth of copies at any moment, accumulated since the last full
        recount."""
        copies = self.copies(pod_class)
        return self._growth[pod_class.number].measure(copies)

    def room(self, pod_class: ClassRecord, rows: BoolArray) -> IntArray:
        """Return int64[T]: the number of copies that the rows bool[N] fit together in each slot."""
        mask = rows[: self._extent]
        copies = self.copies(pod_class)
        known = self._rooms.get(pod_class.number)
        if known is None or not np.array_equal(known[0], mask):
            known = self._rooms[pod_class.number] = (mask.copy(), (copies * mask).sum(axis=1, dtype=np.int64))
        return known[1]

    def _count(self, pod_class: ClassRecord, rows: RowArray, begin: int = 0, end: int | None = None) -> CountArray:
        if len(rows) == self._extent and begin == 0 and end is None:
            return self._count_all(pod_class)
        fits: IntArray | None = None
        for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True):
            copies = self.free(column)[begin:end, rows] // amount
            fits = copies if fits is None else np.minimum(fits, copies, out=fits)
        assert fits is not None  # every pod takes a pod slot
        return _counts(fits)

    def _count_all(self, pod_class: ClassRecord) -> CountArray:
        """Return int32[T, N] of all rows.

        Divisions cost the most: the scarcest resource is first, and others count on rows where they can be scarcer.
        """
        columns, amounts = pod_class.columns, pod_class.amounts
        scarcity = np.argsort(self._state.nodes.idle[columns].sum(axis=1) // amounts, kind="stable")
        fits: CountArray | None = None
        for column, amount in zip(columns[scarcity].tolist(), amounts[scarcity].tolist(), strict=True):
            free = self.free(column)
            if fits is None:
                fits = _counts(free // amount)
                continue
            scarcer = np.flatnonzero(
                self._least_free(column, len(free)) < fits.max(axis=0).astype(np.int64) * amount
            )
            if len(scarcer):
                fits[:, scarcer] = np.minimum(fits[:, scarcer], _counts(free[:, scarcer] // amount))
        assert fits is not None  # every pod takes a pod slot
        return fits

    def copies_until(self, pod_class: ClassRecord, rows: RowArray, end: int) -> IntArray:
        """Return int64[rows]: the number of copies that each row fits from now until `end`."""
        _, last = self.line.slots(self.line.edges[0], end)
        fewest: IntArray | None = None
        for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True):
            copies = self._least_free(column, last)[rows] // amount
            fewest = copies if fewest is None else np.minimum(fewest, copies)
        assert fewest is not None  # every pod takes a pod slot
        return np.maximum(fewest, 0)

    def _least_free(self, column: int, last: int) -> IntArray:
        """Return int64[N]: the least free amounts of one resource from now to slot `last`."""
        free = self.free(column)[:last]
        known = self._least.get((column, last))
        if known is None:
            if len(self._least) >= _MOST_LEAST:
                self._least.clear()
            least: IntArray = free.min(axis=0)
        else:
            since, least = known
            if since == self._changes:
                return least
            changed = np.flatnonzero(self._changed_at > since)
            if len(changed):
                least[changed] = free[:, changed].min(axis=0)
        self._least[column, last] = (self._changes, least)
        return least

    def copies_beside(
        self, pod_class: ClassRecord, rows: RowArray, start: int, end: int, lifted: Iterable[Window]
    ) -> IntArray:
        """Return int64[rows]: the number of copies that each row fits over [start, end) without the `lifted`
        windows."""
        first, last = self.line.slots(start, end)
        lifted = list(lifted)
        fewest: IntArray | None = None
        for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True):
            free = self.free_beside(column, first, last, lifted)[:, rows]
            copies = free.min(axis=0) // amount
            fewest = copies if fewest is None else np.minimum(fewest, copies)
        assert fewest is not None  # every pod takes a pod slot
        return np.maximum(fewest, 0)

    def free_beside(self, column: int, first: int, last: int, lifted: Iterable[Window]) -> IntArray:
        """Return int64[slots, N] of one resource from slot `first` to `last` without the `lifted` windows."""
        free = self.free(column)[first:last].copy()
        for window in lifted:
            begin, end = (min(max(slot, first), last) - first for slot in self.line.slots(window.start, window.end))
            for share in window.kept:
                free[begin:end, share.rows] += share.kept(column)
        return free

    def copies_at_last(self, pod_class: ClassRecord) -> IntArray:
        """Return int64[N]: the number of copies that each row fits after all pods with a known end have left."""
        free = self._state.nodes.idle[pod_class.columns][:, : self._extent].copy()
        for row, (_, usages) in self._ends.items():
            free[:, row] += usages[:, pod_class.columns].sum(axis=0)
        for window in self._standing.values():
            for share in window.shares if window.end >= FOREVER else ():
                usage = share.pod_class.footprint.usage
                wide = np.pad(usage, (0, max(0, self._width - len(usage))))
                free[:, share.rows] -= np.outer(wide[pod_class.columns], share.counts)
        copies: IntArray = np.maximum((free // pod_class.amounts[:, None]).min(axis=0), 0)
        return copies

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
            over |= (free < 0).any(axis=0)
        return over


class _Growth:
    """Growth of the copies of a class, from the former counts of all recounted rows."""

    __slots__ = ("_former", "_noted", "_sum")

    def __init__(self, extent: int) -> None:
        self._sum = 0
        self._noted: BoolArray = np.zeros(extent, dtype=np.bool_)
        self._former: list[tuple[RowArray, CountArray]] = []

    def note(self, copies: CountArray, rows: RowArray) -> None:
        """Store the counts of rows of `copies` int32[T, N] before they are recounted."""
        new = rows[~self._noted[rows]]
        if len(new):
            self._noted[new] = True
            self._former.append((new, copies[:, new]))

    def measure(self, copies: CountArray) -> int:
        for rows, former in self._former:
            self._noted[rows] = False
            self._sum += int(np.maximum((copies[:, rows] - former).max(axis=0), 0).sum(dtype=np.int64))
        self._former.clear()
        return self._sum


def _counts(copies: IntArray) -> CountArray:
    np.maximum(copies, 0, out=copies)
    return np.minimum(copies, _MOST_COPIES, out=copies).astype(np.int32)


def _never(record: PodRecord) -> int:
    return FOREVER
