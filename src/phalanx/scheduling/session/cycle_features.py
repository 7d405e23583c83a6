"""Features of a scheduler's cycle by extension point, and the handling of failed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import call
from typing import TYPE_CHECKING, TypeVar

from phalanx.model.gang import GangKey
from phalanx.scheduling.framework.reserved_rooms import joint_room
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

Steps = Sequence[tuple[str, Callable[["Session"], object]]]
Guarded = Callable[["Session", Steps], None]
"""Function that calls named steps with the session; on an exception in one it rolls back the decisions of this step
and reports it."""

_EVENTS = ("deallocated", "ready", "allocated")


class CycleFeatures:
    """Features in the order of the registry; each extension point calls them in this order."""

    def __init__(self, features: Sequence[CyclePlugin] = ()) -> None:
        self._offered = [feature for feature in features if isinstance(feature, OfferedFeature)]
        own = [feature.feature if isinstance(feature, OfferedFeature) else feature for feature in features]
        self._by_type = {type(feature): feature for feature in own}
        self._at = {
            point: [feature for feature in features if _takes_part(feature, point)] for point in CYCLE_POINTS
        }
        self._guarded = {
            point: [(f"{feature.name} at {point}", getattr(feature, point)) for feature in self._at[point]]
            for point in ("lend", "evict_ended", "revise", "published")
        }
        # These are called several times per event.
        self._outdated = [feature.outdated for feature in self._at["outdated"]]
        self._next_due = [feature.next_due for feature in self._at["next_due"]]
        self._events: CycleEvents | None = CycleEvents() if any(self._at[point] for point in _EVENTS) else None

    def get(self, kind: type[F]) -> F | None:
        """Return the feature of a class; None if this scheduler does not have it."""
        return self._by_type.get(kind)  # type: ignore[return-value]  # each is filed under its own class

    # between cycles

    def configure(self, policy: Policy) -> None:
        for feature in self._at["configure"]:
            feature.configure(policy)

    def reserved_room(self) -> ReservedRoom | None:
        """Return the room that features close to pods; None without reservations."""
        rooms = (feature.reserved_room() for feature in self._at["reserved_room"])
        return joint_room([room for room in rooms if room is not None])

    @property
    def outdated(self) -> bool:
        return any(map(call, self._outdated))

    @property
    def next_due(self) -> float | None:
        times = [due for next_due in self._next_due if (due := next_due()) is not None]
        return min(times, default=None)

    def observe(self, now: int) -> None:
        for feature in self._at["observe"]:
            feature.observe(now)

    # within a cycle

    def advance(self, now: int) -> None:
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
        """Return a context for a recheck of a unit."""
        turn = Turn()
        for feature in self._at["guard_recheck"]:
            if (guard := feature.guard_recheck(session, unit)) is not None:
                turn.guard(guard)
        return turn

    def search(self, session: Session, unit: QueuedUnit) -> Turn:
        """Return a context for a search for victims for a unit."""
        turn = Turn()
        for feature in self._at["guard_search"]:
            if (guard := feature.guard_search(session, unit)) is not None:
                turn.guard(guard)
        return turn

    def refused(self, session: Session, units: list[QueuedUnit]) -> None:
        """Call the features with the units that are unschedulable after their turn."""
        refused = [unit for unit in units if unit.key in session.unschedulable]
        for feature in self._at["refused"] if refused else ():
            feature.refused(session, refused)

    def lend(self, session: Session, guarded: Guarded) -> None:
        guarded(session, self._guarded["lend"])

    def evict_ended(self, session: Session, guarded: Guarded) -> None:
        guarded(session, self._guarded["evict_ended"])

    def revise(self, session: Session, guarded: Guarded) -> None:
        guarded(session, self._guarded["revise"])

    def published(self, session: Session, guarded: Guarded) -> None:
        if self._events is not None:
            self._announce(session, self._events)
        guarded(session, self._guarded["published"])
        for offered in self._offered:
            offered.report(session)

    def _announce(self, session: Session, events: CycleEvents) -> None:
        """Call the features with the events on pods and gangs since the last call."""
        events_since = events.collect(session)
        for feature in self._at["deallocated"] if events_since.deallocated else ():
            feature.deallocated(session, events_since.deallocated)
        for feature in self._at["ready"] if events_since.ready else ():
            feature.ready(session, events_since.ready)
        for feature in self._at["allocated"] if events_since.allocated else ():
            feature.allocated(session, events_since.allocated)

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
