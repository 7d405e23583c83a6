"""When which rows close for maintenance, kept current with windows, signals, labels and the time."""

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

#: So far ahead the plan of starts is told of every occurrence; what comes later counts as one that never ends.
HORIZON: Final = 7 * 86_400
#: From so long before a signal's time on nothing without a limit is placed. (Nodes of Karpenter's all expire some
#: day: were it earlier, what has no limit would have no place.)
SIGNAL_LEAD: Final = 86_400
#: So long after its time a signal says nothing any more: whoever put it there has forgotten it.
SIGNAL_OVER: Final = 86_400
# Occurrences are looked up anew after so many seconds.
_LOOK_AHEAD = 3600
# With more limits than these each look at the time looks at all rows that close.
_MOST_LIMITS = 1000
IN_MAINTENANCE: Final = "node(s) were in maintenance"
CLOSE_FOR_MAINTENANCE: Final = "node(s) close for maintenance"


class Closure(msgspec.Struct, frozen=True, eq=False):
    """Rows that are not to be used over [start, end); `cause` is for people."""

    start: int
    end: int
    rows: npt.NDArray[np.intp]
    cause: str


class MaintenanceTable:
    """`closes` is int64[2, N]: from when on each row is closed to pods whose latest end is known, and to those that
    have none; NO_END where it is not. A pod goes where it has ended by then.

    `closures` are those of windows as spans, of the next days, and `ends` int64[N] from when on a row is closed for
    good by a signal, for who plans ahead; `version` changes with them. `now` is up to when it has been brought,
    `start_delay` how many seconds pass between a pod's binding and its start.
    """

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.windows: dict[str, MaintenanceWindow] = {}
        # By node and who says it.
        self._signals: dict[str, dict[str, tuple[MaintenanceSignal, ...]]] = {}
        # The nodes and the starts of all of them; None once they have changed.
        self._told: tuple[list[str], IntArray] | None = None
        self.heeds_signals = True
        self.start_delay = 30
        self.now = 0.0
        self.version = 0
        self.closures: list[Closure] = []
        self.ends: IntArray = np.full(0, NO_END, dtype=np.int64)
        self._strict = self._surplus = self.closes = _open(0)
        self._more_for_surplus: list[int] = []
        self._spans: dict[str, tuple[float, tuple[Occurrence, ...]]] = {}
        self._rows: dict[str, npt.NDArray[np.intp]] = {}
        self._changed = False
        self._cursor = -1
        self._next = math.inf
        # Limits of the classes that have been asked about.
        self._limits: set[int] = set()

    # -- what is told -------------------------------------------------------------------------------------------

    def put(self, window: MaintenanceWindow) -> bool:
        """Takes in a window; whether it is news."""
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
        known = {**known, by: signals} if signals else {name: said for name, said in known.items() if name != by}
        if known:
            self._signals[node] = known
        else:
            del self._signals[node]
        self._changed, self._told = True, None
        return True

    def configure(self, heeds_signals: bool, start_delay: int) -> None:
        self._changed |= (heeds_signals, start_delay) != (self.heeds_signals, self.start_delay)
        self.heeds_signals, self.start_delay = heeds_signals, start_delay

    # -- the time -------------------------------------------------------------------------------------------------

    @property
    def outdated(self) -> bool:
        """Whether something was told that `advance` has not seen."""
        return self._changed or (self._watches and self._cursor != self._nodes.relabelled.end)

    @property
    def next_change(self) -> float | None:
        """When, by what is known now, a row closes or opens."""
        return self._next if self._next < math.inf else None

    def advance(self, now: float) -> bool:
        """Brings everything up to `now`; whether rows have opened to anybody."""
        last, self.now = self.now, now
        nodes = self._nodes
        if not (self._watches or self._changed):
            return False
        stale = self._changed or self._cursor != nodes.relabelled.end or not last <= now < self._next
        opened = (stale or self.closes.shape[1] != nodes.capacity) and self._refresh(backwards=now < last)
        # Also where something else has changed: a row that closes when it did may be too late for somebody by now.
        self._close_to_limits(last)
        return opened

    def _close_to_limits(self, last: float) -> None:
        """Tells of rows on which pods of some limit would have ended in time a moment ago, but would not now."""
        every = len(self._limits) > _MOST_LIMITS
        for closes in (self._strict[0], self._surplus[0]):
            for start in np.unique(closes[closes < NO_END]).tolist():
                latest = start - self.start_delay
                if every or any(last <= latest - limit < self.now for limit in self._limits):
                    self._nodes.changes.note_all(np.flatnonzero(closes == start).tolist())

    def _refresh(self, backwards: bool) -> bool:
        nodes = self._nodes
        self._changed, self._cursor, self._next = False, nodes.relabelled.end, math.inf
        former = [_padded(each, nodes.capacity) for each in (self._strict, self._surplus)]
        strict, surplus = _open(nodes.capacity), _open(nodes.capacity)
        before, self.closures, self._rows = (self.closures, self.ends), [], {}
        self.ends = np.full(nodes.capacity, NO_END, dtype=np.int64)
        for name in sorted(self.windows):
            self._apply_window(self.windows[name], strict, surplus)
        if self.heeds_signals:
            self._apply_signals(strict, surplus)
        for row in self._nodes.marked:
            # It is about to be uncordoned, or whose mark it has nobody knows.
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
            nodes.changes.note_all(np.flatnonzero(differs).tolist())
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
        """Many nodes may have one, each at a time of its own (all of Karpenter's): no loop but over their names."""
        if self._told is None:
            entries = [
                (node, signal)
                for node, said in sorted(self._signals.items())
                for signals in said.values()
                for signal in signals
            ]
            starts = np.array([signal.start for _, signal in entries], dtype=np.int64)
            self._told = ([node for node, _ in entries], starts)
        names, starts = self._told
        rows = np.fromiter((self._nodes.row(name) for name in names), dtype=np.intp, count=len(names))
        stands = (rows >= 0) & ((starts == 0) | (starts + SIGNAL_OVER > self.now))
        rows, starts = rows[stands], starts[stands]
        near = starts - SIGNAL_LEAD <= self.now
        for moments in (starts, starts - SIGNAL_LEAD, starts[starts > 0] + SIGNAL_OVER):
            self._expect(*_least(moments[moments > self.now]))
        for closes in (strict, surplus):
            np.minimum.at(closes[0], rows, starts)
            np.minimum.at(closes[1], rows[near], starts[near])
        soon = starts <= self.now + HORIZON
        np.minimum.at(self.ends, rows[soon], starts[soon])

    def _expect(self, *moments: int) -> None:
        """Notes the first that is to come."""
        self._next = min((self._next, *(moment for moment in moments if moment > self.now)))

    def _spans_of(self, window: MaintenanceWindow) -> tuple[Occurrence, ...]:
        """What is under way and to come; the last has no end where more follow beyond the horizon."""
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
        found = np.zeros(nodes.capacity, dtype=np.bool_)
        if window.selector is not None:
            found = nodes.alive.copy()
            for requirement in window.selector:
                found &= nodes.labels.satisfies(requirement, slice(None))
        for name in window.names:
            row = nodes.row(name)
            if row >= 0:
                found[row] = True
        return np.flatnonzero(found)

    # -- questions ------------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether any row closes at any time."""
        return self._watches

    @property
    def _watches(self) -> bool:
        return bool(self.windows or self._signals or self._nodes.marked)

    def begun(self) -> list[MaintenanceWindow]:
        """The windows that are under way, by name."""
        now = self.now
        return [self.windows[name] for name, (_, spans) in sorted(self._spans.items()) if _contains(spans, now)]

    def rows_of(self, name: str) -> list[int]:
        """The rows of a window, in order, as of the last `advance`."""
        found: list[int] = self._rows.get(name, _NO_ROWS).tolist()
        return found

    def closed_by(self, rows: Iterable[int], start: int, end: int) -> str:
        """What closes any of the rows over [start, end), "" for nothing."""
        asked = set(rows)
        found = (each for each in self.closures if each.start < end and each.end > start)
        window = next((each.cause for each in found if not asked.isdisjoint(each.rows.tolist())), "")
        gone = (self._nodes.names[row] for row in sorted(asked) if row < len(self.ends) and self.ends[row] < end)
        return window or next((each.source for name in gone for each in self._said_of(name)), "")

    def _said_of(self, node: str) -> list[MaintenanceSignal]:
        said = (signal for signals in self._signals.get(node, {}).values() for signal in signals)
        return sorted(said, key=lambda signal: signal.start)

    def ends_of(self, rows: npt.NDArray[np.intp]) -> IntArray:
        """int64[rows] of `ends`, NO_END for rows that have come since."""
        if len(self.ends) < self._nodes.capacity:
            more = np.full(self._nodes.capacity - len(self.ends), NO_END, dtype=np.int64)
            self.ends = np.concatenate([self.ends, more])
        found: IntArray = self.ends[rows]
        return found

    def open_to(self, run_limit: int, tolerations: Sequence[Toleration], rows: Rows) -> BoolArray:
        """bool[rows]: where a pod that is placed now has ended in time, by its limit (0: it has none)."""
        closes: IntArray = self._current()[0 if run_limit else 1, rows]
        if any(tolerates(each, CORDONED) for each in tolerations):
            return np.ones(closes.shape, dtype=np.bool_)
        if not run_limit:
            unlimited: BoolArray = closes == NO_END
            return unlimited
        self._limits.add(run_limit)
        found: BoolArray = closes >= self.now + self.start_delay + run_limit
        return found

    def explain(self, run_limit: int, tolerations: Sequence[Toleration], rows: Rows) -> list[tuple[str, BoolArray]]:
        """What keeps such a pod off, reason by reason."""
        closed = ~self.open_to(run_limit, tolerations, rows)
        if not closed.any():
            return []
        closes: IntArray = self._current()[0 if run_limit else 1, rows]
        begun = closed & (closes <= self.now)
        ahead = closed & ~begun
        found = [(IN_MAINTENANCE, begun)] if begun.any() else []
        if ahead.any():
            starts = np.unique(closes[ahead])
            first = "" if len(starts) == 1 else "the first "
            reason = f"{CLOSE_FOR_MAINTENANCE} before it would end, {first}from {format_moment(int(starts[0]))}"
            found.append((reason, ahead))
        return found

    @contextmanager
    def surplus_turn(self) -> Iterator[None]:
        """Within it those are placed who leave when they are told to."""
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
                _padded(each, self._nodes.capacity) for each in (self._strict, self._surplus)
            )
            self.closes = self._strict
        return self.closes


_NO_ROWS: Final = np.zeros(0, dtype=np.intp)


def _contains(spans: Sequence[Occurrence], moment: float) -> bool:
    return any(span.start <= moment < span.end for span in spans[:1])


def _least(moments: IntArray) -> list[int]:
    return [int(moments.min())] if len(moments) else []


def _open(capacity: int) -> IntArray:
    return np.full((2, capacity), NO_END, dtype=np.int64)


def _padded(closes: IntArray, capacity: int) -> IntArray:
    missing = capacity - closes.shape[1]
    return np.concatenate([closes, _open(missing)], axis=1) if missing > 0 else closes


def _same(former: Sequence[Closure], new: Sequence[Closure]) -> bool:
    """Whether they say the same, but for what is over."""
    return len(former) == len(new) and all(
        (one.start, one.end) == (other.start, other.end) and np.array_equal(one.rows, other.rows)
        for one, other in zip(former, new, strict=True)
    )
