"""Times from which nodes close for maintenance, updated with windows, announcements, labels and the clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import numpy.typing as npt

from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.model.maintenance import NO_END, Before, MaintenanceSignal, MaintenanceWindow
from phalanx.model.node import CORDONED
from phalanx.model.recurrence import Occurrence
from phalanx.model.selectors import Toleration, tolerates
from phalanx.model.text.duration import format_moment

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

#: Horizon for single occurrences in the plan of starts; a later occurrence counts as one without an end.
HORIZON: Final = 7 * 86_400
#: Time before a signal from which pods without a limit are not placed. (All of Karpenter's nodes expire some day:
#: with a longer lead, such pods would have no node.)
SIGNAL_LEAD: Final = 86_400
#: Time after which a past signal is ignored as forgotten.
SIGNAL_OVER: Final = 86_400
# Seconds after which occurrences are computed again.
_LOOK_AHEAD = 3600
# With more distinct limits, each update checks all closing rows.
_MOST_LIMITS = 1000
IN_MAINTENANCE: Final = "node(s) were in maintenance"
CLOSE_FOR_MAINTENANCE: Final = "node(s) close for maintenance"


class Closure(msgspec.Struct, frozen=True, eq=False):
    """Nodes (as rows) that are closed over [start, end); `cause` is for messages."""

    start: int
    end: int
    rows: npt.NDArray[np.intp]
    cause: str


class MaintenanceTable:
    """`closes` is int64[2, N]: the time at which each row closes for pods with a known latest end, and for pods
    without one; NO_END if it does not close. A pod can be placed where it ends before that time.

    For planners, `closures` are the spans of windows in the next days, and `ends` int64[N] the times at which a
    signal closes a row for good; `version` counts changes of both. `now` is the time of the last update,
    `start_delay` the seconds between a pod's binding and its start.
    """

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.windows: dict[str, MaintenanceWindow] = {}
        # By node and source.
        self._signals: dict[str, dict[str, tuple[MaintenanceSignal, ...]]] = {}
        # Nodes and starts of all signals; None after a change.
        self._signal_starts: tuple[list[str], IntArray] | None = None
        self.heeds_signals = True
        self.start_delay = 30
        self.now = 0.0
        self.version = 0
        self.closures: list[Closure] = []
        self.ends: IntArray = np.full(0, NO_END, dtype=np.int64)
        self._strict = self._surplus = self.closes = _open(0)
        self._more_for_surplus: list[int] = []
        #: Rows that the last `advance` has closed or opened, to pods with some limits at least.
        self.changed_rows: list[int] = []
        self._spans: dict[str, tuple[float, tuple[Occurrence, ...]]] = {}
        self._rows: dict[str, npt.NDArray[np.intp]] = {}
        self._changed = False
        self._cursor = -1
        self._next = math.inf
        # Run-time limits of the queried classes.
        self._limits: set[int] = set()

    # -- events --------------------------------------------------------------------------------------------------

    def put(self, window: MaintenanceWindow) -> bool:
        """Store a MaintenanceWindow. Return whether it differs from the last."""
        if self.windows.get(window.name) == window:
            return False
        self.windows[window.name] = window
        self._spans.pop(window.name, None)
        self._changed = True
        return True

    def drop(self, name: str) -> bool:
        self._spans.pop(name, None)
        self._changed |= name in self.windows
        return self.windows.pop(name, None) is not None

    def signal(self, node: str, by: str, signals: tuple[MaintenanceSignal, ...]) -> bool:
        known = self._signals.get(node, {})
        if known.get(by, ()) == signals:
            return False
        known = {**known, by: signals} if signals else {name: entry for name, entry in known.items() if name != by}
        if known:
            self._signals[node] = known
        else:
            del self._signals[node]
        self._changed, self._signal_starts = True, None
        return True

    def configure(self, heeds_signals: bool, start_delay: int) -> None:
        self._changed |= (heeds_signals, start_delay) != (self.heeds_signals, self.start_delay)
        self.heeds_signals, self.start_delay = heeds_signals, start_delay

    # -- time -----------------------------------------------------------------------------------------------------

    @property
    def outdated(self) -> bool:
        """Whether there is a change of windows or nodes that `advance` has not processed."""
        return self._changed or (self._watches and self._cursor != self._nodes.relabelled.end)

    @property
    def next_change(self) -> float | None:
        """Next known time at which a node closes for maintenance or opens."""
        return self._next if self._next < math.inf else None

    def advance(self, now: float) -> bool:
        """Process all maintenance that starts or ends up to the time `now`. Return whether any node has opened."""
        last, self.now = self.now, now
        self.changed_rows = []
        nodes = self._nodes
        if not (self._watches or self._changed):
            return False
        stale = self._changed or self._cursor != nodes.relabelled.end or not last <= now < self._next
        opened = (stale or self.closes.shape[1] != nodes.capacity) and self._refresh(backwards=now < last)
        # Also after other changes: a row that closes as planned can be too late now for a pod's limit.
        self._close_to_limits(last)
        return opened

    def _close_to_limits(self, last: float) -> None:
        """Record the nodes on which a pod with some run time limit would have ended in time at the last update, but
        does not now."""
        check_all = len(self._limits) > _MOST_LIMITS
        for closes in (self._strict[0], self._surplus[0]):
            for start in np.unique(closes[closes < NO_END]).tolist():
                latest = start - self.start_delay
                if check_all or any(last <= latest - limit < self.now for limit in self._limits):
                    self._note(np.flatnonzero(closes == start).tolist())

    def _note(self, rows: list[int]) -> None:
        self._nodes.changes.note_all(rows)
        self.changed_rows += rows

    def _refresh(self, backwards: bool) -> bool:
        nodes = self._nodes
        self._changed, self._cursor, self._next = False, nodes.relabelled.end, math.inf
        former = [_padded(closes, nodes.capacity) for closes in (self._strict, self._surplus)]
        strict, surplus = _open(nodes.capacity), _open(nodes.capacity)
        before, self.closures, self._rows = (self.closures, self.ends), [], {}
        self.ends = np.full(nodes.capacity, NO_END, dtype=np.int64)
        for name in sorted(self.windows):
            self._apply_window(self.windows[name], strict, surplus)
        if self.heeds_signals:
            self._apply_signals(strict, surplus)
        for row in self._nodes.marked:
            # The row is about to be uncordoned, or the origin of its mark is unknown.
            if strict[0, row] > self.now:
                strict[:, row] = surplus[:, row] = 0
        differs = (strict != former[0]).any(axis=0) | (surplus != former[1]).any(axis=0)
        if backwards:
            differs |= (strict < NO_END).any(axis=0)
        opened = bool((strict > former[0]).any() or (surplus > former[1]).any())
        self.closes = self._strict = strict
        self._surplus = surplus
        self._more_for_surplus = np.flatnonzero((strict != surplus).any(axis=0)).tolist()
        if differs.any():
            self._note(np.flatnonzero(differs).tolist())
        if not (_same(before[0], self.closures) and np.array_equal(before[1], self.ends)):
            self.version += 1
        return opened

    def _apply_window(self, window: MaintenanceWindow, strict: IntArray, surplus: IntArray) -> None:
        spans = self._spans_of(window)
        rows = self._rows[window.name] = self._rows_of(window)
        if not spans:
            return
        first = spans[0]
        begun = first.start <= self.now
        closes_at = first.start - window.close_before if window.close_before else 0
        self._expect(first.start, first.end, closes_at)
        planned = spans if window.before is not Before.ALL else spans[:begun]
        self.closures += [Closure(span.start, span.end, rows, window.title) for span in planned]
        if begun or (window.before is not Before.ALL and closes_at <= self.now):
            strict[:, rows] = np.minimum(strict[:, rows], first.start)
            if begun or window.before is Before.LIMIT:
                surplus[:, rows] = np.minimum(surplus[:, rows], first.start)

    def _apply_signals(self, strict: IntArray, surplus: IntArray) -> None:
        """Close the nodes that announce maintenance. Nodes can have many announcements, each at its own time
        (Karpenter), so only their names are looped over."""
        if self._signal_starts is None:
            entries = [
                (node, signal)
                for node, signals_by_source in sorted(self._signals.items())
                for signals in signals_by_source.values()
                for signal in signals
            ]
            starts = np.array([signal.start for _, signal in entries], dtype=np.int64)
            self._signal_starts = ([node for node, _ in entries], starts)
        names, starts = self._signal_starts
        rows = np.fromiter((self._nodes.row(name) for name in names), dtype=np.intp, count=len(names))
        is_current = (rows >= 0) & ((starts == 0) | (starts + SIGNAL_OVER > self.now))
        rows, starts = rows[is_current], starts[is_current]
        near = starts - SIGNAL_LEAD <= self.now
        for moments in (starts, starts - SIGNAL_LEAD, starts[starts > 0] + SIGNAL_OVER):
            self._expect(*_first(moments[moments > self.now]))
        for closes in (strict, surplus):
            np.minimum.at(closes[0], rows, starts)
            np.minimum.at(closes[1], rows[near], starts[near])
        soon = starts <= self.now + HORIZON
        np.minimum.at(self.ends, rows[soon], starts[soon])

    def _expect(self, *moments: int) -> None:
        """Record the earliest future time at which a node closes or opens."""
        self._next = min((self._next, *(moment for moment in moments if moment > self.now)))

    def _spans_of(self, window: MaintenanceWindow) -> tuple[Occurrence, ...]:
        """Return a window's present and future occurrences; the last one has no end if more follow beyond the
        horizon."""
        known = self._spans.get(window.name)
        now = int(self.now)
        if known is not None and known[0] - _LOOK_AHEAD <= self.now < known[0]:
            return known[1]
        spans = window.spans(now, now + HORIZON)
        if window.recurrence is not None or not spans:
            later = window.next_span(spans[-1].end if spans else now)
            if later is not None and window.recurrence is None:
                spans = (later,)
            elif later is not None:
                spans += (Occurrence(later.start, NO_END),)
        until = min((self.now + _LOOK_AHEAD, *(span.end for span in spans[:1])))
        self._spans[window.name] = (until, spans)
        return spans

    def _rows_of(self, window: MaintenanceWindow) -> npt.NDArray[np.intp]:
        nodes = self._nodes
        mask = np.zeros(nodes.capacity, dtype=np.bool_)
        if window.selector is not None:
            mask = nodes.alive.copy()
            for requirement in window.selector:
                mask &= nodes.labels.satisfies(requirement, slice(None))
        for name in window.names:
            row = nodes.row(name)
            if row >= 0:
                mask[row] = True
        return np.flatnonzero(mask)

    # -- queries --------------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether any node closes for maintenance at any time."""
        return self._watches

    @property
    def _watches(self) -> bool:
        return bool(self.windows or self._signals or self._nodes.marked)

    def begun(self) -> list[MaintenanceWindow]:
        """Return the MaintenanceWindows that have begun and not ended, by name."""
        now = self.now
        return [self.windows[name] for name, (_, spans) in sorted(self._spans.items()) if _contains(spans, now)]

    def rows_of(self, name: str) -> list[int]:
        """Return the node rows that a MaintenanceWindow closes, in order, as of the last `advance`."""
        rows: list[int] = self._rows.get(name, _NO_ROWS).tolist()
        return rows

    def closed_by(self, rows: Iterable[int], start: int, end: int) -> str:
        """Return the maintenance that closes any of the node rows over [start, end); "" for none."""
        row_set = set(rows)
        closures = (closure for closure in self.closures if closure.start < end and closure.end > start)
        window = next((closure.cause for closure in closures if not row_set.isdisjoint(closure.rows.tolist())), "")
        names = (self._nodes.names[row] for row in sorted(row_set) if row < len(self.ends) and self.ends[row] < end)
        return window or next((signal.source for name in names for signal in self._signals_of(name)), "")

    def _signals_of(self, node: str) -> list[MaintenanceSignal]:
        signals = (signal for group in self._signals.get(node, {}).values() for signal in group)
        return sorted(signals, key=lambda signal: signal.start)

    def ends_of(self, rows: npt.NDArray[np.intp]) -> IntArray:
        """Return the end of maintenance of each node row, NO_END for rows added since the last update."""
        if len(self.ends) < self._nodes.capacity:
            more = np.full(self._nodes.capacity - len(self.ends), NO_END, dtype=np.int64)
            self.ends = np.concatenate([self.ends, more])
        ends: IntArray = self.ends[rows]
        return ends

    def open_to(self, run_limit: int, tolerations: Sequence[Toleration], rows: Rows) -> BoolArray:
        """Return bool[rows]: whether a pod placed now on each node ends before its maintenance by the run time
        limit (0: no limit)."""
        closes: IntArray = self._current()[0 if run_limit else 1, rows]
        if any(tolerates(toleration, CORDONED) for toleration in tolerations):
            return np.ones(closes.shape, dtype=np.bool_)
        if not run_limit:
            unlimited: BoolArray = closes == NO_END
            return unlimited
        self._limits.add(run_limit)
        is_open: BoolArray = closes >= self.now + self.start_delay + run_limit
        return is_open

    def explain(self, run_limit: int, tolerations: Sequence[Toleration], rows: Rows) -> list[tuple[str, BoolArray]]:
        """Return the maintenance reasons that block a pod with this run time limit, each with bool[rows]."""
        closed = ~self.open_to(run_limit, tolerations, rows)
        if not closed.any():
            return []
        closes: IntArray = self._current()[0 if run_limit else 1, rows]
        begun = closed & (closes <= self.now)
        closes_later = closed & ~begun
        reasons = [(IN_MAINTENANCE, begun)] if begun.any() else []
        if closes_later.any():
            starts = np.unique(closes[closes_later])
            first = "" if len(starts) == 1 else "the first "
            reason = f"{CLOSE_FOR_MAINTENANCE} before it would end, {first}from {format_moment(int(starts[0]))}"
            reasons.append((reason, closes_later))
        return reasons

    @contextmanager
    def surplus_turn(self) -> Iterator[None]:
        """Place surplus members inside this context: those that are evicted in time for maintenance need not end
        before it."""
        rows = self._more_for_surplus
        if not rows:
            yield
            return
        self.closes = self._surplus
        self._nodes.changes.note_all(rows)
        try:
            yield
        finally:
            self.closes = self._strict
            self._nodes.changes.note_all(rows)

    def _current(self) -> IntArray:
        if self.closes.shape[1] < self._nodes.capacity:
            self._strict, self._surplus = (
                _padded(closes, self._nodes.capacity) for closes in (self._strict, self._surplus)
            )
            self.closes = self._strict
        return self.closes


_NO_ROWS: Final = np.zeros(0, dtype=np.intp)


def _contains(spans: Sequence[Occurrence], moment: float) -> bool:
    return any(span.start <= moment < span.end for span in spans[:1])


def _first(moments: IntArray) -> list[int]:
    return [int(moments.min())] if len(moments) else []


def _open(capacity: int) -> IntArray:
    return np.full((2, capacity), NO_END, dtype=np.int64)


def _padded(closes: IntArray, capacity: int) -> IntArray:
    missing = capacity - closes.shape[1]
    return np.concatenate([closes, _open(missing)], axis=1) if missing > 0 else closes


def _same(former: Sequence[Closure], new: Sequence[Closure]) -> bool:
    """Return whether two lists of closures are equal."""
    return len(former) == len(new) and all(
        (a.start, a.end) == (b.start, b.end) and np.array_equal(a.rows, b.rows)
        for a, b in zip(former, new, strict=True)
    )
