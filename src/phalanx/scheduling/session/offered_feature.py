"""Features of the cycle from other packages: what they raise harms no one else, and they rest after it."""

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
"""Seconds for which a feature is left out after it has raised."""
# A feature gets at most one cycle in so many seconds by `next_due`.
_SHORTEST_NAP = 1.0
_LONGEST_NOTE = 500
# So many cycles in a row it gets by `outdated`; where it wants more it keeps the scheduler busy.
_MOST_OUTDATED = 20


def overridden_points(kind: type[CyclePlugin]) -> tuple[str, ...]:
    """Return the points at which the features of a class take part, in the order of the cycle."""
    return tuple(name for name in CYCLE_POINTS if getattr(kind, name) is not getattr(CyclePlugin, name))


class OfferedFeature(CyclePlugin):
    """Stands for a feature of another package at every point.

    Where the feature raises or returns something without a meaning, its decisions at that point are undone, the
    plan reports the failure, and the feature rests for a minute of the scheduler's clock.
    """

    def __init__(self, feature: CyclePlugin) -> None:
        self.name = feature.name
        self.feature = feature
        self._overridden = frozenset(overridden_points(type(feature)))
        # `advance` tells the time, `next_due` ends the rest.
        self.points = self._overridden | {"advance", "next_due"}
        self._now: float | None = None
        self._resting = False
        self._since: float | None = None
        self._unconfigured: Policy | None = None
        self._unreported: list[Failure] = []
        self._is_outdated = False
        self._outdated_cycles = 0

    def report(self, session: Session) -> None:
        """Add the failures at points without a session to the plan."""
        session.plan.failures += self._unreported
        self._unreported.clear()

    # under which policy

    def configure(self, policy: Policy) -> None:
        # After a rest the feature is configured before anything else.
        self._unconfigured = policy
        self._configure()

    def _configure(self) -> None:
        policy = self._unconfigured
        if policy is not None and not self._resting:
            self._ask("configure", partial(self.feature.configure, policy), None)
            if not self._resting:
                self._unconfigured = None

    # before and between cycles

    def outdated(self) -> bool:
        wants = self._ask("outdated", lambda: _one_of("True or False", self.feature.outdated(), bool), False)
        self._is_outdated = wants
        if not wants:
            self._outdated_cycles = 0
        return wants

    def next_due(self) -> float | None:
        if self._resting:
            return self._since + REST if self._since is not None else None
        if "next_due" not in self._overridden:
            return None
        due = self._ask("next_due", lambda: _time(self.feature.next_due()), None)
        return max(due, self._now + _SHORTEST_NAP) if due is not None and self._now is not None else due

    def observe(self, now: float) -> None:
        self._ask("observe", partial(self.feature.observe, now), None)

    # within a cycle

    def advance(self, now: float) -> None:
        self._now = now
        if self._resting:
            self._since = now if self._since is None else min(self._since, now)
            if now < self._since + REST:
                return
            self._resting, self._since = False, None
            self._configure()
        if self._is_outdated:
            self._is_outdated, self._outdated_cycles = False, self._outdated_cycles + 1
            if self._outdated_cycles > _MOST_OUTDATED:
                self._outdated_cycles = 0
                self.fail("outdated", PluginResultError(f"still outdated after {_MOST_OUTDATED} cycles in a row"))
        if "advance" in self._overridden:
            self._ask("advance", partial(self.feature.advance, now), None)

    def wake(self, session: Session) -> Iterable[UnitKey]:
        return self._ask("wake", lambda: _keys(self.feature.wake(session), session), (), session)

    def wake_behind(self, session: Session) -> Iterable[UnitKey]:
        return self._ask("wake_behind", lambda: _keys(self.feature.wake_behind(session), session), (), session)

    def deallocated(self, session: Session, allocations: list[Allocation]) -> None:
        self._ask("deallocated", partial(self.feature.deallocated, session, list(allocations)), None, session)

    def ready(self, session: Session, gangs: list[GangRecord]) -> None:
        self._ask("ready", partial(self.feature.ready, session, list(gangs)), None, session)

    def allocated(self, session: Session, allocations: list[Allocation]) -> None:
        self._ask("allocated", partial(self.feature.allocated, session, list(allocations)), None, session)

    def begin(self, session: Session) -> None:
        self._ask("begin", partial(self.feature.begin, session), None, session)

    def guard_turn(self, session: Session, units: list[QueuedUnit], turn: Turn) -> Guard | None:
        return self._guard("guard_turn", session, partial(self.feature.guard_turn, session, list(units), turn))

    def guard_recheck(self, session: Session, unit: QueuedUnit) -> Guard | None:
        return self._guard("guard_recheck", session, partial(self.feature.guard_recheck, session, unit))

    def guard_search(self, session: Session, unit: QueuedUnit) -> Guard | None:
        return self._guard("guard_search", session, partial(self.feature.guard_search, session, unit))

    def refused(self, session: Session, units: list[QueuedUnit]) -> None:
        self._ask("refused", partial(self.feature.refused, session, list(units)), None, session)

    def evict_ended(self, session: Session) -> None:
        self._ask("evict_ended", partial(self.feature.evict_ended, session), None, session)

    def revise(self, session: Session) -> None:
        self._ask("revise", partial(self.feature.revise, session), None, session)

    def note(self, of: GangKey | str) -> str:
        return self._ask("note", lambda: _one_of("str", self.feature.note(of), str)[:_LONGEST_NOTE], "")

    def published(self, session: Session) -> None:
        self._ask("published", partial(self.feature.published, session), None, session)

    # failures

    def _ask(self, point: str, ask: Callable[[], T], default: T, session: Session | None = None) -> T:
        """Return what `ask` returns; `default` while the feature rests or where it raises."""
        if self._resting:
            return default
        marks = session.decisions.begin_turn() if session is not None else ()
        try:
            return ask()
        except (Exception, SystemExit) as error:
            if session is not None:
                session.decisions.undo_turn(marks)
            self.fail(point, error)
            return default

    def _guard(self, point: str, session: Session, ask: Callable[[], Guard | None]) -> Guard | None:
        # A turn is about to begin, or has begun: what it has decided is not this feature's to undo.
        guard = self._ask(
            point, lambda: _one_of("a context manager", ask(), AbstractContextManager, type(None)), None
        )
        return _OfferedGuard(self, point, guard) if guard is not None else None

    def fail(self, point: str, error: BaseException) -> None:
        """Report an error, and rest."""
        what, why = f"feature {self.name} at {point}", f"{type(error).__name__}: {error}"[:500]
        self._unreported.append(Failure(what, why, self.name, "".join(traceback.format_exception(error))))
        if not self._resting:
            self._resting, self._since = True, self._now


class _OfferedGuard(AbstractContextManager[None]):
    """The guard of a feature of another package around a turn that goes on whatever the guard raises."""

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
            # An error of the turn that passes through the guard is none of the guard.
            if raised is not error:
                self._feature.fail(self._point, raised)


def _one_of(wanted: str, found: T, *kinds: type) -> T:
    if not isinstance(found, kinds):
        raise unexpected(wanted, found)
    return found


def _time(found: float | None) -> float | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not isfinite(found):
        raise unexpected("seconds since the epoch or None", found)
    return float(found)


def _keys(found: Iterable[UnitKey], session: Session) -> tuple[UnitKey, ...]:
    most = 2 * len(session.state.pods) + 1
    keys = tuple(islice(found, most + 1))
    if len(keys) > most:
        raise PluginResultError(f"expected an end: gave more than {most}, twice the pods that there are")
    for key in keys:
        if not isinstance(key, str | tuple) or not isinstance(key, Hashable):
            raise unexpected("keys of units", key)
    return keys
