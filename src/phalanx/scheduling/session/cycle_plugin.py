"""The extension points of a feature that takes part in every cycle."""

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
    """The turn of units with one demand, as a context within the guards of features.

    `opened` is set where something that is reserved was opened to them, `placed` to the unit that got a node for
    which something was reserved.
    """

    __slots__ = ("_guards", "opened", "placed")

    def __init__(self) -> None:
        self.opened = False
        self.placed: QueuedUnit | None = None
        self._guards: ExitStack | None = None

    def guard(self, guard: Guard) -> None:
        """Enter a guard, which is left with the turn."""
        if self._guards is None:
            self._guards = ExitStack()
        self._guards.enter_context(guard)

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._guards is not None:
            self._guards.__exit__(kind, error, trace)


class Allocation(msgspec.Struct, frozen=True):
    """A pod and the node that it holds, or has held."""

    record: PodRecord
    node: str


class CyclePlugin:
    """A feature of the cycle. Override the methods in which it takes part; the cycle calls only those.

    One instance lives as long as the scheduler, also under another policy. The order of the methods below is the
    order in which a cycle calls them. Times are seconds since the epoch. A feature of another package that raises
    is reported in the plan, what it had decided at that point is undone, and it rests for a minute
    (`offered_feature.py`). Of ours that holds at `evict_ended`, `revise` and `published`, and none rests.
    """

    name: str

    # under which policy

    def configure(self, policy: Policy) -> None:
        """Adapt to a policy, before the first cycle under it."""
        raise NotImplementedError

    def reserved_room(self) -> ReservedRoom | None:
        """Return the room on nodes that is closed to pods for a time; None where none is. Asked in each cycle."""
        raise NotImplementedError

    # before and between cycles

    def outdated(self) -> bool:
        """Return whether a cycle is wanted although no unit has changed."""
        raise NotImplementedError

    def next_due(self) -> float | None:
        """Return the time from which on a cycle is wanted although nothing may have happened by then."""
        raise NotImplementedError

    def observe(self, now: float) -> None:
        """Record what accounts hold from `now` on: before and after each cycle, and when pods came or went."""
        raise NotImplementedError

    # within a cycle

    def advance(self, now: float) -> None:
        """Let time pass, before the session of a cycle begins: end what has expired, open the room that is free."""
        raise NotImplementedError

    def wake(self, session: Session) -> Iterable[UnitKey]:
        """Return the units that get a turn although nothing about them has changed."""
        raise NotImplementedError

    def wake_behind(self, session: Session) -> Iterable[UnitKey]:
        """Return further such units, now that `session.units` is known and not empty."""
        raise NotImplementedError

    def deallocated(self, session: Session, allocations: list[Allocation]) -> None:
        """React to pods that have left their nodes since the last call (finished, deleted, not bound after all)."""
        raise NotImplementedError

    def ready(self, session: Session, gangs: list[GangRecord]) -> None:
        """React to gangs that are complete and admitted now and wait for nothing but room and quota. Asked here,
        and again before `published` with the gangs that the cycle has admitted."""
        raise NotImplementedError

    def allocated(self, session: Session, allocations: list[Allocation]) -> None:
        """React to pods that hold a node since the last call: placed by this scheduler, or seen on it. Asked here,
        and again before `published` with what the cycle has decided; the first call has all pods on nodes."""
        raise NotImplementedError

    def begin(self, session: Session) -> None:
        """Prepare `session.units`, which are complete and not yet in order."""
        raise NotImplementedError

    def guard_turn(self, session: Session, units: list[QueuedUnit], turn: Turn) -> Guard | None:
        """Return a context in which units with one demand have their turn; None where nothing concerns them."""
        raise NotImplementedError

    def guard_recheck(self, session: Session, unit: QueuedUnit) -> Guard | None:
        """Return a context in which the cycle looks whether a unit would get something."""
        raise NotImplementedError

    def guard_search(self, session: Session, unit: QueuedUnit) -> Guard | None:
        """Return a context in which victims for a unit are searched."""
        raise NotImplementedError

    def refused(self, session: Session, units: list[QueuedUnit]) -> None:
        """React to units that could not be placed in their turn and are unschedulable now."""
        raise NotImplementedError

    def evict_ended(self, session: Session) -> None:
        """Evict the pods whose time is over, after the actions."""
        raise NotImplementedError

    def revise(self, session: Session) -> None:
        """Look at the decisions of a cycle before its verdicts are published."""
        raise NotImplementedError

    def note(self, of: GangKey | str) -> str:
        """Return what the verdict of a gang, or of a pod by its uid, says beside the reason; "" for nothing."""
        raise NotImplementedError

    def published(self, session: Session) -> None:
        """Record the outcome of a cycle, for the next one or for another process."""
        raise NotImplementedError


CYCLE_POINTS = tuple(name for name, method in vars(CyclePlugin).items() if callable(method) and name[0] != "_")
"""The names of the extension points, in the order of the cycle."""
