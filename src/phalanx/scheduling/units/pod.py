"""A pod without a gang. It has its turn with the pods of its kind, see `actions/allocate.py`."""

from __future__ import annotations

from phalanx.scheduling.preemption.preemptor import PodPreemptor
from phalanx.scheduling.queue.demands import PodDemand, WaitReason
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.unit import Unit


class PodUnit(Unit):
    """A pod without a gang."""

    __slots__ = ()

    def demand_refusal(self, session: Session, demand: WaitReason) -> FitError | None:
        assert isinstance(demand, PodDemand)
        return None if demand.fits(session) else FitError(*session.fit_errors.facts(demand, afresh=True))

    def preemptor(self, session: Session) -> PodPreemptor | None:
        return PodPreemptor(session, [self], self.pod) if self.pod is not None else None
