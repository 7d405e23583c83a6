"""Extension points of a feature that takes part in every cycle."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.gang import GangKey
from phalanx.scheduling.queue.unschedulable import UnitKey

if TYPE_CHECKING:
    from phalanx.scheduling.framework.plugin_runtime import ReservedRoom
    from phalanx.scheduling.framework.policy import Policy
    from phalanx.scheduling.queue.unit import QueuedUnit
    from phalanx.scheduling.session.session import Session


Guard = AbstractContextManager[None]


class Turn:
    """The turn of units with one demand: a context within the guards of features.

    `opened` is set if reserved room was opened to the units. `placed` is the unit that was placed on reserved room.
    `may_open` is whether more could fit within the guards than without them: not if each guard has the attribute
    `opens`, and it is False.
    """

    __slots__ = ("_first", "_further", "may_open", "opened", "placed")

    def __init__(self) -> None:
        self.opened = self.may_open = False
        self.placed: QueuedUnit | None = None
        # Nearly every turn has one guard.
        self._first: Guard | None = None
        self._further: ExitStack | None = None

    def guard(self, guard: Guard) -> None:
        """Enter a feature's context manager (guard) around the placement of these units; the end of the turn exits
        it."""
        if self._first is None:
            guard.__enter__()
            self._first = guard
        else:
            if self._further is None:
                self._further = ExitStack()
            self._further.enter_context(guard)
        self.may_open |= getattr(guard, "opens", True)

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._further is not None:
                self._further.__exit__(kind, error, trace)
        finally:
            if self._first is not None:
                self._first.__exit__(kind, error, trace)


class Allocation(msgspec.Struct, frozen=True):
    """A pod and the node to which it is, or was, allocated."""

    record: PodRecord
    node: str


class CyclePlugin:
    """A feature of the cycle. Override the methods that it implements; the cycle calls only overridden methods.

    One instance exists as long as the scheduler, also under another policy. The methods are listed in the order of
    their calls in a cycle. Times are seconds since the epoch. If a third-party feature raises an exception, the
    plan reports it, its decisions at that point are rolled back, and it is skipped for a minute
    (`offered_feature.py`). For our features this applies at `evict_ended`, `revise` and `published`, without a
    pause.
    """

    name: str

    # policy

    def configure(self, policy: Policy) -> None:
        """Adapt to a policy before its first cycle."""
        raise NotImplementedError

    def reserved_room(self) -> ReservedRoom | None:
        """Return the room on nodes that is closed to pods; None without reservations. Called in each cycle."""
        raise NotImplementedError

    # before and between cycles

    def outdated(self) -> bool:
        """Return whether a cycle is needed although no unit has changed."""
        raise NotImplementedError

    def next_due(self) -> float | None:
        """Return the time from which a cycle is needed even without events; None if never."""
        raise NotImplementedError

    def observe(self, now: int) -> None:
        """Record the usage of accounts from `now` on: before and after each cycle, and when pods were added or
        removed.
        """
        raise NotImplementedError

    # within a cycle

    def advance(self, now: int) -> None:
        """Advance the time before the session of a cycle begins: end expired reservations, open freed room."""
        raise NotImplementedError

    def wake(self, session: Session) -> Iterable[UnitKey]:
        """Return the units that get a turn although they have not changed."""
        raise NotImplementedError

    def wake_behind(self, session: Session) -> Iterable[UnitKey]:
        """Return further units that get a turn, now that `session.units` is known and not empty."""
        raise NotImplementedError

    def deallocated(self, session: Session, allocations: list[Allocation]) -> None:
        """Handle pods that were removed from their nodes since the last call (finished, deleted, failed
        binding).
        """
        raise NotImplementedError

    def ready(self, session: Session, gangs: list[GangRecord]) -> None:
        """Handle gangs that are complete and admitted now and wait only for room and quota.

        Called here, and again before `published` with the gangs that the cycle has admitted.
        """
        raise NotImplementedError

    def allocated(self, session: Session, allocations: list[Allocation]) -> None:
        """Handle pods that were allocated to a node since the last call, by this scheduler or another.

        Called here, and again before `published` with the cycle's decisions; the first call gets all pods on nodes.
        """
        raise NotImplementedError

    def begin(self, session: Session) -> None:
        """Prepare `session.units`, which are complete and not yet in order."""
        raise NotImplementedError

    def guard_turn(self, session: Session, units: list[QueuedUnit], turn: Turn) -> Guard | None:
        """Return a context for the turn of units with one demand; None if the feature does not concern them."""
        raise NotImplementedError

    def guard_recheck(self, session: Session, unit: QueuedUnit) -> Guard | None:
        """Return a context for a recheck of a unit; None if the feature does not concern it.

        A context with the attribute `opens` that is False after its `__enter__` opens no room to the unit.
        """
        raise NotImplementedError

    def guard_search(self, session: Session, unit: QueuedUnit) -> Guard | None:
        """Return a context for a search for victims for a unit; None if the feature does not concern it."""
        raise NotImplementedError

    def refused(self, session: Session, units: list[QueuedUnit]) -> None:
        """Handle units that could not be placed in their turn and are unschedulable now."""
        raise NotImplementedError

    def lend(self, session: Session) -> None:
        """Place waiting units in room that no unit within its limits can use, after the actions."""
        raise NotImplementedError

    def evict_ended(self, session: Session) -> None:
        """Evict pods beyond their time limit, after the actions."""
        raise NotImplementedError

    def revise(self, session: Session) -> None:
        """Inspect the decisions of a cycle before its verdicts are published."""
        raise NotImplementedError

    def note(self, of: GangKey | str) -> str:
        """Return a note for the verdict of a gang, or of a pod by its uid, besides the reason; "" for none."""
        raise NotImplementedError

    def published(self, session: Session) -> None:
        """Record the outcome of a cycle, for the next cycle or another process."""
        raise NotImplementedError


CYCLE_POINTS = tuple(name for name, method in vars(CyclePlugin).items() if callable(method) and name[0] != "_")
"""The names of the extension points, in the order of the cycle."""


def earlier(one: float | None, other: float | None) -> float | None:
    """Return the earlier of two times; None without any."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
