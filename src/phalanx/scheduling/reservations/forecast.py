"""Forecast of starts: each waiting unit in turn gets its earliest window; nothing is reserved by it."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec
import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.cluster.state import ClusterState
from phalanx.model.text.duration import format_moment
from phalanx.scheduling.quota.quota_check import QuotaCheck
from phalanx.scheduling.reservations.account_future import AccountFuture
from phalanx.scheduling.reservations.future import FutureMatrix
from phalanx.scheduling.reservations.impossible import why_never
from phalanx.scheduling.reservations.telling import basis
from phalanx.scheduling.reservations.timeline import FOREVER, HORIZON
from phalanx.scheduling.reservations.window import Part, Window
from phalanx.scheduling.reservations.window_search import earliest_window


class NoStart(enum.StrEnum):
    """Reason why there is no forecast."""

    NOT_PLANNED = "NotPlannedYet"
    BEYOND_HORIZON = "BeyondHorizon"
    NO_END_KNOWN = "NoEndKnown"
    CANNOT_RUN = "CannotEverRun"
    NODES_CLOSED = "NodesClosed"
    DEADLINE = "DeadlineImpossible"
    NOT_AN_AMOUNT = "NotAnAmount"
    HELD = "Held"


class ForecastQuestion(msgspec.Struct, frozen=True, eq=False):
    """Request of one unit: its parts for `duration` seconds (0: for ever), not before a moment.

    `run_time` is its declared run time (0: none); `deadline` the moment at which it is killed (0: none).
    `reopened` are the parts with the nodes that are in back-off until the moment `reopens`, () if there are none.
    """

    parts: tuple[Part, ...]
    duration: int
    run_time: int = 0
    deadline: int = 0
    not_before: int = 0
    reopened: tuple[Part, ...] = ()
    reopens: int = 0


class StartForecast(msgspec.Struct, frozen=True):
    """Forecast start in seconds since the epoch; 0 where `no_start` (and `message`) give the reason.

    It rests on the run-time limits of `gangs` gangs. `endless` pods without a known end are on other nodes.
    """

    start: int = 0
    gangs: int = 0
    endless: int = 0
    no_start: NoStart | None = None
    message: str = ""


NOT_PLANNED = StartForecast(no_start=NoStart.NOT_PLANNED, message="not planned yet")
#: Forecast of a unit that is refused now although enough amounts are free.
NOT_AN_AMOUNT = StartForecast(
    no_start=NoStart.NOT_AN_AMOUNT,
    message="enough amounts are free; blocked by another constraint (ports, volumes, spread, topology domain)",
)


class StartForecaster:
    """Conservative pass: each request gets the earliest window beside the earlier requests and the reserved
    `windows`.

    It has a future of its own: neither the plan nor the cluster changes. With `basis`, forecasts include the
    run-time limits that they rest on.
    """

    def __init__(
        self,
        state: ClusterState,
        quotas: QuotaCheck,
        start_delay: int,
        now: int,
        windows: Iterable[Window],
        basis: bool = True,
    ) -> None:
        self._with_basis = basis
        self._state = state
        self._quotas = quotas
        self._start_delay = start_delay
        self._now = now
        self._windows = list(windows)
        self._future = FutureMatrix(state, start_delay)
        self._future.advance(now, self._windows)
        line, end_of = self._future.line, self._future.pod_ends.end_of
        self._accounts = AccountFuture(state, line, quotas, self._windows, now, end_of)

    def next(self, asked: ForecastQuestion) -> StartForecast:
        """Return the start of the next request, and reserve its window in this forecast."""
        self._future.update()
        if self._accounts.line is not self._future.line:
            self._accounts.follow(self._future.line)
        duration = asked.duration + self._start_delay if asked.duration else 0
        parts, window = asked.parts, self._earliest(asked.parts, duration, asked.not_before)
        if asked.reopened:
            later = self._earliest(asked.reopened, duration, max(asked.not_before, asked.reopens))
            if later is not None and (window is None or later.start < window.start):
                parts, window = asked.reopened, later
        if window is None:
            return self._none(asked)
        self._windows.append(window)
        self._future.reserve(window)
        self._accounts.take(window)
        late = self._too_late(asked, window.start)
        return late or self.told(parts, window)

    def _earliest(self, parts: tuple[Part, ...], duration: int, not_before: int) -> Window | None:
        return earliest_window(self._future, parts, duration, self._accounts, not_before=not_before).window

    def told(self, parts: tuple[Part, ...], window: Window) -> StartForecast:
        """Return the planned start of a window as published."""
        if not self._with_basis:
            return StartForecast(window.start)
        gangs, endless = basis(self._state, self._future, parts, window, self._now, self._start_delay)
        return StartForecast(window.start, gangs, endless)

    def _too_late(self, asked: ForecastQuestion, start: int) -> StartForecast | None:
        if not asked.deadline or start + max(asked.run_time, 1) <= asked.deadline:
            return None
        when = f"the earliest start is {format_moment(start)}" if start < FOREVER else "no start before it is known"
        return StartForecast(
            no_start=NoStart.DEADLINE,
            message=f"cannot finish before its deadline {format_moment(asked.deadline)}: {when}",
        )

    # -- reasons for no start ------------------------------------------------------------------------------------

    def _none(self, asked: ForecastQuestion) -> StartForecast:
        never = why_never(self._state, self._quotas, asked.parts)
        if never is not None:
            code = NoStart.NODES_CLOSED if never.closed else NoStart.CANNOT_RUN
            return StartForecast(no_start=code, message=never.message)
        for part in asked.parts:
            once_all_ended = self._copies_at_last(part.pod_class)
            usable = part.rows[: len(once_all_ended)]
            if int(once_all_ended[usable].sum()) < part.count:
                return self._no_end(usable)
        last = len(self._future.line)
        if not self._accounts.allows(asked.parts, last - 1, last):
            return StartForecast(
                no_start=NoStart.NO_END_KNOWN,
                message="no end known: pods that use the quota have no run-time limit",
            )
        if asked.deadline and asked.deadline <= self._now + HORIZON:
            late = self._too_late(asked, FOREVER)
            assert late is not None
            return late
        return StartForecast(
            no_start=NoStart.BEYOND_HORIZON, message=f"beyond the horizon ({HORIZON // 86_400} days)"
        )

    def _copies_at_last(self, pod_class: ClassRecord) -> IntArray:
        """Return int64[N]: the number of copies that each row fits after all pods with a known end have left."""
        nodes, width = self._state.nodes, len(self._state.space)
        free = nodes.idle[pod_class.columns][:, : nodes.extent].copy()
        for row, (_, usages) in self._future.pod_ends.by_row.items():
            free[:, row] += usages[:, pod_class.columns].sum(axis=0)
        for window in self._future.windows:
            for share in window.shares if window.end >= FOREVER else ():
                usage = share.pod_class.footprint.usage
                wide = np.pad(usage, (0, max(0, width - len(usage))))
                free[:, share.rows] -= np.outer(wide[pod_class.columns], share.counts)
        copies: IntArray = np.maximum((free // pod_class.amounts[:, None]).min(axis=0), 0)
        return copies

    def _no_end(self, usable: BoolArray) -> StartForecast:
        pods = int(self._future.pod_ends.endless[: self._state.nodes.extent][usable].sum())
        waiting = sum(window.end >= FOREVER for window in self._windows)
        message = f"no end known: {pods} pod{'s' if pods != 1 else ''} on the nodes it could use"
        if waiting:
            message += f", and {waiting} before it without a limit"
        return StartForecast(endless=pods, no_start=NoStart.NO_END_KNOWN, message=message)
