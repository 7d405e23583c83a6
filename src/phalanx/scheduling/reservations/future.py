"""What every node has free at every moment of the time line, in exact integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.cluster.state import ClusterState
from phalanx.scheduling.reservations.pod_ends import latest_end
from phalanx.scheduling.reservations.timeline import FOREVER, Timeline, timeline
from phalanx.scheduling.reservations.window import RowArray, Window

# From so large a part of the table on everything is counted anew; that is cheaper.
_REBUILD_PART = 4
# More than any node has of anything: what it lacks in maintenance.
_CLOSED = 2**52
# For so many classes and ends it remembers how many copies every row takes until then.
_MOST_LEAST = 256


class FutureMatrix:
    """free[t, n] per resource: what row n has free from edge t to the next, with every window taken off.

    It follows the cluster row by row as long as the time line stays, and counts only the resources that somebody
    has asked about. What a row's amounts hold beyond the pods that are known to be on it (those of an open
    transaction) is taken to stay. In maintenance a row has nothing.
    The rounding is one-sided.
    """

    def __init__(self, state: ClusterState, start_delay: int = 0) -> None:
        self._state = state
        self._start_delay = start_delay
        self._now = 0.0
        self.line = Timeline((0,), True)
        self._extent = 0
        self._cursor = self._time_cursor = -1
        # By row: the ends int64[P] and the amounts int64[P, R] of the pods on it.
        self._ends: dict[int, tuple[IntArray, IntArray]] = {}
        # By row int64[N]: how many pods without a known end it has, but for those that come with the node.
        self.endless: IntArray = np.zeros(0, dtype=np.int64)
        # How many pods end at each moment.
        self._moments: dict[int, int] = {}
        self._width = 0
        self._free: dict[int, IntArray] = {}
        self._copies: dict[int, tuple[ClassRecord, IntArray]] = {}
        # By class: the windows that came or went since its copies were counted, and bool[N] the rows that changed.
        self._unseen: dict[int, dict[int, Window]] = {}
        self._outdated: dict[int, BoolArray] = {}
        # By class: the rows that were asked about, and how many copies they take together at each moment.
        self._rooms: dict[int, tuple[BoolArray, IntArray]] = {}
        self._windows: dict[int, dict[int, Window]] = {}
        self._standing: dict[int, Window] = {}
        self._redraw = False
        self._closed_version = -1
        # How often it has been counted from nothing.
        self.drawn = 0
        # How many changes there were, and by row int64[N] the number of its last one.
        self._changes = 0
        self._changed_at: IntArray = np.zeros(0, dtype=np.int64)
        # By class and slot: as of which change, and the copies int64[N] that last from now to that slot.
        self._least: dict[tuple[int, int], tuple[int, IntArray]] = {}
        self._growth: dict[int, _Growth] = {}
        #: When a pod has left at the latest for another reason than its limit; FOREVER for none.
        self.leaves_by: Callable[[PodRecord], int] = _never

    # -- following the cluster ------------------------------------------------------------------------------

    def advance(self, now: float, windows: Iterable[Window]) -> None:
        """Brings everything up to `now`; `windows` are all that stand."""
        self._now = now
        self._stand({id(window): window for window in windows})
        changed = self._changed_rows()
        # A pod that is past its end is expected a while longer.
        over = {end for end in self._moments if end <= now}
        late = [row for row, (ends, _) in self._ends.items() if not over.isdisjoint(ends.tolist())] if over else []
        self._read(changed, late)
        self._draw(changed, late)

    def _stand(self, windows: dict[int, Window]) -> None:
        for number in self._standing.keys() - windows.keys():
            self._lay(self._standing[number], False)
        for number in windows.keys() - self._standing.keys():
            self._lay(windows[number], True)
        self._standing = windows

    def _lay(self, window: Window, on: bool) -> None:
        for row in window.rows.tolist():
            if on:
                self._windows.setdefault(row, {})[id(window)] = window
            else:
                self._windows.get(row, {}).pop(id(window), None)

    @property
    def current(self) -> bool:
        """Whether nothing has changed on the nodes since."""
        return self.times_current and self._cursor == self._state.nodes.changes.end

    @property
    def times_current(self) -> bool:
        """Whether no pod's end has changed since."""
        return self._time_cursor == self._state.pods.retimed.end

    def skip(self) -> None:
        """What was noted of nodes since concerns others only."""
        self._cursor = self._state.nodes.changes.end

    def update(self) -> None:
        """Takes in what has been placed since, for those who are about to place more."""
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
        """The time line, and what is free on it of what somebody has asked about."""
        kept = {when for window in self._standing.values() for when in (window.start, window.end)}
        extent = self._state.nodes.extent
        maintenance = self._state.nodes.maintenance
        edges = (when for each in maintenance.closures for when in (each.start, each.end))
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
        found = nodes.changes.since(self._cursor, limit)
        more = retimed.since(self._time_cursor, limit)
        self._cursor, self._time_cursor = nodes.changes.end, retimed.end
        if found is None or more is None:
            return None
        return sorted({row for row in (*found, *more) if row >= 0})

    def _read_row(self, row: int) -> None:
        former = self._ends.pop(row, None)
        for end in former[0].tolist() if former is not None else ():
            left = self._moments[end] - 1
            if left:
                self._moments[end] = left
            else:
                del self._moments[end]
        ends, usages, endless = [], [], 0
        for record in self._state.pods.on(row):
            end = latest_end(record, self._now, self._start_delay)
            if record.pod_class.spec.reservation is not None:
                end = min(end, self.leaves_by(record))
            if end == FOREVER:
                endless += not record.pod.fixture
            else:
                ends.append(end)
                usages.append(record.footprint.usage)
                self._moments[end] = self._moments.get(end, 0) + 1
        self.endless[row] = endless
        if ends:
            self._ends[row] = (np.array(ends, dtype=np.int64), np.stack(usages))

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
        """int64[T, rows]: what the rows have free of one resource."""
        free = np.zeros((len(self.line), len(rows)), dtype=np.int64)
        here = [(at, *self._ends[row]) for at, row in enumerate(rows.tolist()) if row in self._ends]
        if here:
            ends = np.concatenate([each for _, each, _ in here])
            amounts = np.concatenate([usages[:, column] for _, _, usages in here])
            where = np.repeat([at for at, _, _ in here], [len(each) for _, each, _ in here])
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
        """bool[T, rows]: when each row is in maintenance."""
        closed = np.zeros((len(self.line), len(rows)), dtype=np.bool_)
        for each in self._state.nodes.maintenance.closures:
            begin, end = self.line.slots(each.start, each.end)
            if begin < end and each.end > self.line.edges[0]:
                closed[begin:end] |= np.isin(rows, each.rows)
        ends = self._state.nodes.maintenance.ends_of(rows)
        # From the slot on in which it begins.
        first = np.searchsorted(self.line.moments, ends, side="right") - 1
        closed |= (ends < FOREVER) & (np.arange(len(closed))[:, None] >= first)
        return closed

    def _on(self, rows: RowArray) -> Iterable[Window]:
        """The windows that have something on the rows."""
        if len(rows) == self._extent:
            return self._standing.values()
        return {
            number: window for row in rows.tolist() for number, window in self._windows.get(row, {}).items()
        }.values()

    # -- windows ----------------------------------------------------------------------------------------------

    def take(self, window: Window) -> None:
        """Takes a window off."""
        self._standing[id(window)] = window
        # An exact time line has an edge wherever a window ends.
        self._redraw |= self.line.exact and window.end < FOREVER and window.end not in self.line.edges
        self._lay(window, True)
        self._change(window, -1)

    def give_back(self, window: Window) -> None:
        """Adds back what was taken off for a window."""
        self._standing.pop(id(window), None)
        self._lay(window, False)
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
            # What is taken off and put back before anybody asks has changed nothing.
            if unseen.pop(id(window), None) is None:
                unseen[id(window)] = window

    def _mark_changed(self, rows: RowArray) -> None:
        self._changes += 1
        self._changed_at[rows[rows < len(self._changed_at)]] = self._changes

    def _replace(self, pod_class: ClassRecord, copies: IntArray, rows: RowArray, begin: int, end: int) -> None:
        """Counts the copies on some rows anew, and keeps their sum true."""
        fresh = self._count(pod_class, rows, begin, end)
        self._growth[pod_class.number].note(copies, rows)
        known = self._rooms.get(pod_class.number)
        if known is not None:
            mask, room = known
            room[begin:end] += ((fresh - copies[begin:end, rows]) * mask[rows]).sum(axis=1)
        copies[begin:end, rows] = fresh

    # -- questions ---------------------------------------------------------------------------------------------

    def free(self, column: int) -> IntArray:
        """int64[T, N] of one resource."""
        found = self._free.get(column)
        if found is None:
            rows = np.arange(self._extent, dtype=np.intp)
            found = self._free[column] = self._profile(column, rows)
        return found

    def copies(self, pod_class: ClassRecord) -> IntArray:
        """int64[T, N]: how many copies each row takes from each edge to the next, filters aside."""
        found = self._copies.get(pod_class.number)
        if found is None:
            rows = np.arange(self._extent, dtype=np.intp)
            found = self._copies[pod_class.number] = (pod_class, self._count(pod_class, rows))
            self._unseen[pod_class.number] = {}
            self._outdated[pod_class.number] = np.zeros(self._extent, dtype=np.bool_)
            self._growth[pod_class.number] = _Growth(self._extent)
        self._catch_up(*found)
        return found[1]

    def _catch_up(self, pod_class: ClassRecord, copies: IntArray) -> None:
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
        """How many copies more than it did all rows together take at most, at any moment, summed from one call to
        the next since everything was counted from nothing."""
        copies = self.copies(pod_class)
        return self._growth[pod_class.number].measure(copies)

    def room(self, pod_class: ClassRecord, rows: BoolArray) -> IntArray:
        """int64[T]: how many copies the rows bool[N] take together from each edge to the next."""
        mask = rows[: self._extent]
        copies = self.copies(pod_class)
        known = self._rooms.get(pod_class.number)
        if known is None or not np.array_equal(known[0], mask):
            known = self._rooms[pod_class.number] = (mask.copy(), (copies * mask).sum(axis=1))
        return known[1]

    def _count(self, pod_class: ClassRecord, rows: RowArray, begin: int = 0, end: int | None = None) -> IntArray:
        fits: IntArray | None = None
        whole = len(rows) == self._extent
        for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True):
            free = self.free(column)[begin:end]
            here = (free if whole else free[:, rows]) // amount
            fits = here if fits is None else np.minimum(fits, here, out=fits)
        assert fits is not None  # every pod takes a slot
        return np.maximum(fits, 0, out=fits)

    def copies_until(self, pod_class: ClassRecord, rows: RowArray, end: float) -> IntArray:
        """int64[rows]: how many copies that start now and last until `end` each row takes all that time."""
        _, last = self.line.slots(self.line.edges[0], end)
        known = self._least.get((pod_class.number, last))
        if known is None:
            if len(self._least) >= _MOST_LEAST:
                self._least.clear()
            least = self._count_until(pod_class, np.arange(self._extent, dtype=np.intp), last)
        else:
            since, least = known
            changed = np.flatnonzero(self._changed_at > since)
            if len(changed):
                least[changed] = self._count_until(pod_class, changed, last)
        self._least[pod_class.number, last] = (self._changes, least)
        return least[rows]

    def _count_until(self, pod_class: ClassRecord, rows: RowArray, last: int) -> IntArray:
        least: IntArray | None = None
        whole = len(rows) == self._extent
        for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True):
            free = self.free(column)[:last]
            here = (free if whole else free[:, rows]).min(axis=0) // amount
            least = here if least is None else np.minimum(least, here)
        assert least is not None  # every pod takes a slot
        return np.maximum(least, 0)

    def copies_beside(
        self, pod_class: ClassRecord, rows: RowArray, start: float, end: float, lifted: Iterable[Window]
    ) -> IntArray:
        """int64[rows]: how many copies each row takes over [start, end) if some windows did not stand."""
        first, last = self.line.slots(start, end)
        lifted = list(lifted)
        least: IntArray | None = None
        for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True):
            free = self.free_beside(column, first, last, lifted)[:, rows]
            here = free.min(axis=0) // amount
            least = here if least is None else np.minimum(least, here)
        assert least is not None  # every pod takes a slot
        return np.maximum(least, 0)

    def free_beside(self, column: int, first: int, last: int, lifted: Iterable[Window]) -> IntArray:
        """int64[slots, N] of one resource from slot `first` to `last` if some windows did not stand."""
        free = self.free(column)[first:last].copy()
        for window in lifted:
            begin, end = (min(max(slot, first), last) - first for slot in self.line.slots(window.start, window.end))
            for share in window.kept:
                free[begin:end, share.rows] += share.kept(column)
        return free

    def copies_at_last(self, pod_class: ClassRecord) -> IntArray:
        """int64[N]: how many copies each row takes once everything has left whose end is known, however late."""
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

    def overbooks(self, window: Window, rows: Sequence[int]) -> bool:
        """Whether one of these rows is not there, or has less than nothing free, while the window lasts."""
        begin, end = self.line.slots(window.start, window.end)
        for share in window.shares:
            for column in share.pod_class.columns.tolist():
                free = self.free(column)
                for row in rows:
                    if row >= free.shape[1] or not self._state.nodes.alive[row]:
                        return True
                    if (share.rows == row).any() and (free[begin:end, row] < 0).any():
                        return True
        return False

    def overbooked(self) -> BoolArray:
        """bool[N]: the rows from which more was taken off than they have, at some moment."""
        over = np.zeros(self._extent, dtype=np.bool_)
        for free in self._free.values():
            over |= (free < 0).any(axis=0)
        return over


class _Growth:
    """How much the copies of a class have grown: what they were on every row that was counted anew since."""

    __slots__ = ("_former", "_noted", "_sum")

    def __init__(self, extent: int) -> None:
        self._sum = 0
        self._noted: BoolArray = np.zeros(extent, dtype=np.bool_)
        self._former: list[tuple[RowArray, IntArray]] = []

    def note(self, copies: IntArray, rows: RowArray) -> None:
        """The rows of `copies` int64[T, N] are about to be counted anew."""
        new = rows[~self._noted[rows]]
        if len(new):
            self._noted[new] = True
            self._former.append((new, copies[:, new]))

    def measure(self, copies: IntArray) -> int:
        for rows, former in self._former:
            self._noted[rows] = False
            self._sum += int(np.maximum((copies[:, rows] - former).max(axis=0), 0).sum())
        self._former.clear()
        return self._sum


def _never(record: PodRecord) -> int:
    return FOREVER
