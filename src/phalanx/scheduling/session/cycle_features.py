"""The features of a scheduler's cycle, by extension point, and what becomes of one that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from phalanx.model.gang import GangKey
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.session.cycle_events import CycleEvents
from phalanx.scheduling.session.cycle_plugin import CYCLE_POINTS, CyclePlugin, Turn
from phalanx.scheduling.session.offered_feature import OfferedFeature

if TYPE_CHECKING:
    from phalanx.scheduling.framework.plugin_runtime import ReservedRoom
    from phalanx.scheduling.framework.policy import Policy
    from phalanx.scheduling.queue.unit import QueuedUnit
    from phalanx.scheduling.session.session import Session

F = TypeVar("F", bound=CyclePlugin)

Guarded = Callable[["Session", str, Callable[[], object]], None]
"""Calls a function; where it raises, undoes what it has decided and reports it."""

_EVENTS = ("deallocated", "ready", "allocated")


class CycleFeatures:
    """Features in the order of the registry, which is the order in which each point asks them."""

    def __init__(self, features: Sequence[CyclePlugin] = ()) -> None:
        self._offered = [each for each in features if isinstance(each, OfferedFeature)]
        own = [each.feature if isinstance(each, OfferedFeature) else each for each in features]
        self._by_type = {type(feature): feature for feature in own}
        self._at = {point: [each for each in features if _takes_part(each, point)] for point in CYCLE_POINTS}
        self._events: CycleEvents | None = CycleEvents() if any(self._at[point] for point in _EVENTS) else None

    def get(self, kind: type[F]) -> F | None:
        """Return the feature of a class; None where it is not part of this scheduler."""
        return self._by_type.get(kind)  # type: ignore[return-value]  # each is filed under its own class

    # between cycles

    def configure(self, policy: Policy) -> None:
        for feature in self._at["configure"]:
            feature.configure(policy)

    def reserved_room(self) -> ReservedRoom | None:
        """Return the room that is closed to pods: that of the first feature that closes any."""
        found = (feature.reserved_room() for feature in self._at["reserved_room"])
        return next((room for room in found if room is not None), None)

    @property
    def outdated(self) -> bool:
        return any(feature.outdated() for feature in self._at["outdated"])

    @property
    def next_due(self) -> float | None:
        times = (feature.next_due() for feature in self._at["next_due"])
        return min((when for when in times if when is not None), default=None)

    def observe(self, now: float) -> None:
        for feature in self._at["observe"]:
            feature.observe(now)

    # within a cycle

    def advance(self, now: float) -> None:
        for feature in self._at["advance"]:
            feature.advance(now)

    def wake(self, session: Session) -> Iterator[UnitKey]:
        for offered in self._offered:
            offered.report(session)
        for feature in self._at["wake"]:
            yield from feature.wake(session)

    def wake_behind(self, session: Session) -> Iterator[UnitKey]:
        for feature in self._at["wake_behind"]:
            yield from feature.wake_behind(session)

    def begin(self, session: Session) -> None:
        if self._events is not None:
            self._announce(session, self._events)
        for feature in self._at["begin"]:
            feature.begin(session)

    def turn(self, session: Session, units: list[QueuedUnit]) -> Turn:
        """Return the turn of units with one demand, within the guards of all features."""
        turn = Turn()
        for feature in self._at["guard_turn"]:
            if (guard := feature.guard_turn(session, units, turn)) is not None:
                turn.guard(guard)
        return turn

    def recheck(self, session: Session, unit: QueuedUnit) -> Turn:
        """Return a context in which the cycle looks whether a unit would get something."""
        turn = Turn()
        for feature in self._at["guard_recheck"]:
            if (guard := feature.guard_recheck(session, unit)) is not None:
                turn.guard(guard)
        return turn

    def search(self, session: Session, unit: QueuedUnit) -> Turn:
        """Return a context in which victims for a unit are searched."""
        turn = Turn()
        for feature in self._at["guard_search"]:
            if (guard := feature.guard_search(session, unit)) is not None:
                turn.guard(guard)
        return turn

    def refused(self, session: Session, units: list[QueuedUnit]) -> None:
        """Let the features react to those of the units that are unschedulable after their turn."""
        refused = [unit for unit in units if unit.key in session.unschedulable]
        for feature in self._at["refused"] if refused else ():
            feature.refused(session, refused)

    def evict_ended(self, session: Session, guarded: Guarded) -> None:
        self._ask_each("evict_ended", session, guarded)

    def revise(self, session: Session, guarded: Guarded) -> None:
        self._ask_each("revise", session, guarded)

    def published(self, session: Session, guarded: Guarded) -> None:
        if self._events is not None:
            self._announce(session, self._events)
        self._ask_each("published", session, guarded)
        for offered in self._offered:
            offered.report(session)

    def _announce(self, session: Session, events: CycleEvents) -> None:
        """Let the features react to what has happened to pods and gangs."""
        found = events.collect(session)
        for feature in self._at["deallocated"] if found.deallocated else ():
            feature.deallocated(session, found.deallocated)
        for feature in self._at["ready"] if found.ready else ():
            feature.ready(session, found.ready)
        for feature in self._at["allocated"] if found.allocated else ():
            feature.allocated(session, found.allocated)

    def _ask_each(self, point: str, session: Session, guarded: Guarded) -> None:
        for feature in self._at[point]:
            guarded(session, f"{feature.name} at {point}", partial(getattr(feature, point), session))

    def note(self, of: GangKey | str) -> str:
        text = ""
        for feature in self._at["note"]:
            if more := feature.note(of):
                text = f"{text}; {more}" if text else more
        return text


def _takes_part(feature: CyclePlugin, point: str) -> bool:
    if isinstance(feature, OfferedFeature):
        return point in feature.points
    return getattr(type(feature), point) is not getattr(CyclePlugin, point)
