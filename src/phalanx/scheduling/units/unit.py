"""Unit of the queue with the behaviour of its kind in each step of the cycle."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.scheduling.preemption.preemptor import Preemptor
from phalanx.scheduling.queue.demands import WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.attempt import Attempt


class Unit(QueuedUnit):
    """Unit that is popped from the queue as one. Each kind of unit is a subclass; `units/kinds.py` lists the kinds.

    Rechecks of a waiting unit call `demand_refusal`. The search for victims, proofs of moves and dry runs use its
    preemptors. Forecasts, start reservations and defragmentation read `required`.
    """

    __slots__ = ()

    def demand_refusal(self, session: Session, demand: WaitReason) -> FitError | None:
        """Return why the unit's demand does not fit now; None if a part of it fits."""
        raise NotImplementedError

    def preemptor(self, session: Session) -> Preemptor | None:
        """Return the preemptor for all required pods of the unit; None if it needs none."""
        raise NotImplementedError

    def preemptors(self, session: Session) -> Iterator[Preemptor]:
        """Yield the preemptors for which victims are searched, in order, until one is served."""
        whole = self.preemptor(session)
        if whole is not None:
            yield whole


class GangsUnit(Unit):
    """A unit of gangs. Its turn (`units/turn.py`) makes an attempt."""

    __slots__ = ()

    def attempt(self, session: Session) -> Attempt | None:
        """Return an attempt to place the unit; None if an obstacle prevents it. The verdicts name the obstacle."""
        raise NotImplementedError


def kind_of(unit: QueuedUnit) -> Unit:
    """Return the unit as its kind; the queue of a scheduler contains only units of `UNIT_KINDS`."""
    assert isinstance(unit, Unit)
    return unit
