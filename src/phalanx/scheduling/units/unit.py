"""A unit with what its kind does at each station of the cycle."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.scheduling.preemption.preemptor import Preemptor
from phalanx.scheduling.queue.demands import WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.attempt import Attempt


class Unit(QueuedUnit):
    """What is popped from the queue as one. A kind of unit is a subclass; `units/kinds.py` lists them.

    While it waits, a recheck asks `demand_refusal`; the search for victims, proofs of moves and dry runs ask for
    preemptors. Forecasts, start reservations and defragmentation read `required`.
    """

    __slots__ = ()

    def demand_refusal(self, session: Session, demand: WaitReason) -> FitError | None:
        """Return why the unit would not get now what it asks for; None if it would get something."""
        raise NotImplementedError

    def preemptor(self, session: Session) -> Preemptor | None:
        """Return the preemptor of all that the unit needs; None where it needs nothing."""
        raise NotImplementedError

    def preemptors(self, session: Session) -> Iterator[Preemptor]:
        """Return the preemptors for which victims are searched, one after the other until one is served."""
        whole = self.preemptor(session)
        if whole is not None:
            yield whole


class GangsUnit(Unit):
    """A unit of gangs. Its turn (`units/turn.py`) makes an attempt."""

    __slots__ = ()

    def attempt(self, session: Session) -> Attempt | None:
        """Return an attempt to place the unit; None where an obstacle forbids one, which the verdicts say."""
        raise NotImplementedError


def kind_of(unit: QueuedUnit) -> Unit:
    """Return the unit with what its kind does: the queue of a scheduler makes no others."""
    assert isinstance(unit, Unit)
    return unit
