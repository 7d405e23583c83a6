"""Features of third-party packages: a failure is isolated, and the feature is skipped for a minute."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from math import isfinite
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.decisions import Failure
from phalanx.model.gang import GangKey
from phalanx.scheduling.framework.result_checks import PluginResultError, unexpected
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.session.cycle_plugin import CYCLE_POINTS, Allocation, CyclePlugin, Guard, Turn

if TYPE_CHECKING:
    from phalanx.scheduling.framework.policy import Policy
    from phalanx.scheduling.queue.unit import QueuedUnit
    from phalanx.scheduling.session.session import Session

T = TypeVar("T")

REST = 60.0
"""Seconds for which a feature is skipped after it has raised an exception."""
# Minimum of seconds between two cycles that a feature gets by `next_due`.
_SHORTEST_NAP = 1.0
_LONGEST_NOTE = 500
# Maximum of consecutive cycles that a feature gets by `outdated`; more would keep the scheduler busy.
_MOST_OUTDATED = 20


def overridden_points(kind: type[CyclePlugin]) -> tuple[str, ...]:
    """Return the extension points that a feature class implements, in the order of the cycle."""
    return tuple(name for name in CYCLE_POINTS if getattr(kind, name) is not getattr(CyclePlugin, name))


class OfferedFeature(CyclePlugin):
    """Wrapper of a third-party feature at every extension point.

    After an exception or an invalid result, the feature's decisions at that point are rolled back and the plan
    reports the failure. The feature is then skipped for a minute of the scheduler's clock.
    """

    def __init__(self, feature: CyclePlugin) -> None:
        self.name = feature.name
        self.feature = feature
        self._overridden = frozenset(overridden_points(type(feature)))
        # `advance` provides the time, `next_due` ends the pause.
        self.points = self._overridden | {"advance", "next_due"}
        self._now: int | None = None
        self._paused = False
        self._paused_since: float | None = None
        self._unconfigured: Policy | None = None
        self._unreported: list[Failure] = []
        self._is_outdated = False
        self._outdated_cycles = 0

    def report(self, session: Session) -> None:
        """Add failures at points without a session to the plan."""
        session.plan.failures += self._unreported
        self._unreported.clear()

    # policy

    def configure(self, policy: Policy) -> None:
        # After a pause the feature is configured before any other call.
        self._unconfigured = policy
        self._configure()

    def _configure(self) -> None:
        policy = self._unconfigured
        if policy is not None and not self._paused:
            self._call("configure", partial(self.feature.configure, policy), None)
            if not self._paused:
                self._unconfigured = None

    # before and between cycles

    def outdated(self) -> bool:
        is_outdated = self._call("outdated", lambda: _one_of("True or False", self.feature.outdated(), bool), False)
        self._is_outdated = is_outdated
        if not is_outdated:
            self._outdated_cycles = 0
        return is_outdated

    def next_due(self) -> float | None:
        if self._paused:
            return self._paused_since + REST if self._paused_since is not None else None
        if "next_due" not in self._overridden:
            return None
        due = self._call("next_due", lambda: _time(self.feature.next_due()), None)
        return max(due, self._now + _SHORTEST_NAP) if due is not None and self._now is not None else due

    def observe(self, now: int) -> None:
        self._call("observe", partial(self.feature.observe, now), None)

    # within a cycle

    def advance(self, now: int) -> None:
        self._now = now
        if self._paused:
            self._paused_since = now if self._paused_since is None else min(self._paused_since, now)
            if now < self._paused_since + REST:
                return
            self._paused, self._paused_since = False, None
            self._configure()
        if self._is_outdated:
            self._is_outdated, self._outdated_cycles = False, self._outdated_cycles + 1
            if self._outdated_cycles > _MOST_OUTDATED:
                self._outdated_cycles = 0
                self.fail("outdated", PluginResultError(f"still outdated after {_MOST_OUTDATED} cycles in a row"))
        if "advance" in self._overridden:
            self._call("advance", partial(self.feature.advance, now), None)

    def wake(self, session: Session) -> Iterable[UnitKey]:
        return self._call("wake", lambda: _keys(self.feature.wake(session), session), (), session)

    def wake_behind(self, session: Session) -> Iterable[UnitKey]:
        return self._call("wake_behind", lambda: _keys(self.feature.wake_behind(session), session), (), session)

    def deallocated(self, session: Session, allocations: list[Allocation]) -> None:
        self._call("deallocated", partial(self.feature.deallocated, session, list(allocations)), None, session)

    def ready(self, session: Session, gangs: list[GangRecord]) -> None:
        self._call("ready", partial(self.feature.ready, session, list(gangs)), None, session)

    def allocated(self, session: Session, allocations: list[Allocation]) -> None:
        self._call("allocated", partial(self.feature.allocated, session, list(allocations)), None, session)

    def begin(self, session: Session) -> None:
        self._call("begin", partial(self.feature.begin, session), None, session)

    def guard_turn(self, session: Session, units: list[QueuedUnit], turn: Turn) -> Guard | None:
        return self._guard("guard_turn", session, partial(self.feature.guard_turn, session, list(units), turn))

    def guard_recheck(self, session: Session, unit: QueuedUnit) -> Guard | None:
        return self._guard("guard_recheck", session, partial(self.feature.guard_recheck, session, unit))

    def guard_search(self, session: Session, unit: QueuedUnit) -> Guard | None:
        return self._guard("guard_search", session, partial(self.feature.guard_search, session, unit))

    def refused(self, session: Session, units: list[QueuedUnit]) -> None:
        self._call("refused", partial(self.feature.refused, session, list(units)), None, session)

    def lend(self, session: Session) -> None:
        self._call("lend", partial(self.feature.lend, session), None, session)

    def evict_ended(self, session: Session) -> None:
        self._call("evict_ended", partial(self.feature.evict_ended, session), None, session)

    def revise(self, session: Session) -> None:
        self._call("revise", partial(self.feature.revise, session), None, session)

    def note(self, of: GangKey | str) -> str:
        return self._call("note", lambda: _one_of("str", self.feature.note(of), str)[:_LONGEST_NOTE], "")

    def published(self, session: Session) -> None:
        self._call("published", partial(self.feature.published, session), None, session)

    # failures

    def _call(self, point: str, call: Callable[[], T], default: T, session: Session | None = None) -> T:
        """Return the result of `ask`; `default` during a pause or after an exception."""
        if self._paused:
            return default
        marks = session.decisions.begin_turn() if session is not None else ()
        try:
            return call()
        except (Exception, SystemExit) as error:
            if session is not None:
                session.decisions.undo_turn(marks)
            self.fail(point, error)
            return default

    def _guard(self, point: str, session: Session, call: Callable[[], Guard | None]) -> Guard | None:
        # The turn's decisions belong to other code, so a failed guard does not roll them back.
        guard = self._call(
            point, lambda: _one_of("a context manager", call(), AbstractContextManager, type(None)), None
        )
        return _OfferedGuard(self, point, guard) if guard is not None else None

    def fail(self, point: str, error: BaseException) -> None:
        """Report an error and begin a pause."""
        subject, text = f"feature {self.name} at {point}", f"{type(error).__name__}: {error}"[:500]
        self._unreported.append(Failure(subject, text, self.name, "".join(traceback.format_exception(error))))
        if not self._paused:
            self._paused, self._paused_since = True, self._now


class _OfferedGuard(AbstractContextManager[None]):
    """Guard of a third-party feature. The turn continues even if the guard raises an exception."""

    def __init__(self, feature: OfferedFeature, point: str, guard: Guard) -> None:
        self._feature = feature
        self._point = point
        self._guard = guard
        self._entered = False

    def __enter__(self) -> None:
        try:
            self._guard.__enter__()
            self._entered = True
        except (Exception, SystemExit) as error:
            self._feature.fail(self._point, error)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._entered:
            return
        try:
            self._guard.__exit__(kind, error, trace)
        except (Exception, SystemExit) as raised:
            # An exception of the turn itself that passes through the guard is not a failure of the guard.
            if raised is not error:
                self._feature.fail(self._point, raised)


def _one_of(wanted: str, result: T, *kinds: type) -> T:
    if not isinstance(result, kinds):
        raise unexpected(wanted, result)
    return result


def _time(time: float | None) -> float | None:
    if time is None:
        return None
    if isinstance(time, bool) or not isinstance(time, int | float) or not isfinite(time):
        raise unexpected("seconds since the epoch or None", time)
    return float(time)


def _keys(unit_keys: Iterable[UnitKey], session: Session) -> tuple[UnitKey, ...]:
    limit = 2 * len(session.state.pods) + 1
    keys = tuple(islice(unit_keys, limit + 1))
    if len(keys) > limit:
        raise PluginResultError(f"expected an end, got more than {limit} keys, twice the number of pods")
    for key in keys:
        if not isinstance(key, str | tuple) or not isinstance(key, Hashable):
            raise unexpected("keys of units", key)
    return keys
