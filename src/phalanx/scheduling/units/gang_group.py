"""A gang group, mostly of one gang: the quorums of all its gangs are placed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members, place_where_nominated
from phalanx.scheduling.gang_placement.quorum_placement import GangPlacement, demand_of, place_gangs
from phalanx.scheduling.preemption.preemptor import QuorumPreemptor
from phalanx.scheduling.queue.demands import QuorumDemand, WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.refusals.refusal import Refusal
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.bindings import bind_gangs
from phalanx.scheduling.units.obstacles import has_obstacle
from phalanx.scheduling.units.unit import Unit


class GangGroupUnit(Unit):
    """Gangs that start together or not at all."""

    __slots__ = ()

    def attempt(self, session: Session) -> GangGroupAttempt | None:
        return None if has_obstacle(session, self) else GangGroupAttempt(session, self)

    def demand_refusal(self, session: Session, demand: WaitReason) -> FitError | None:
        assert isinstance(demand, QuorumDemand)
        transaction = session.state.transaction()
        facts = place_gangs(session, [GangPlacement(session, gang) for gang in self.gangs], demand, transaction)
        transaction.rollback()
        return session.fit_errors.record(demand, facts) if facts is not None else None

    def preemptor(self, session: Session) -> QuorumPreemptor:
        return QuorumPreemptor(session, self)

    def preemptors(self, session: Session) -> Iterator[QuorumPreemptor]:
        """Yield preemptors of the members of highest priority, then of lower ones as well: each that is placed
        outranks the victims."""
        whole = self.preemptor(session)
        lower = [priority for priority in whole.unstated_priorities if priority < whole.priority]
        if not lower:
            yield whole
            return
        for least in (whole.priority, *sorted(lower, reverse=True)):
            yield QuorumPreemptor(session, self, least)


class GangGroupAttempt:
    """An attempt to place every quorum of a gang group."""

    def __init__(self, session: Session, unit: QueuedUnit) -> None:
        self.unit = unit
        self._session = session
        self._placements = [GangPlacement(session, gang) for gang in unit.gangs]
        self.asks = not all(placement.need.satisfied for placement in self._placements)
        self.nominated = nominated_members(unit)

    @cached_property
    def demand(self) -> QuorumDemand:
        return demand_of(self._placements)

    def least(self) -> Sequence[GangPlacement]:
        return self._placements

    def place(self, transaction: Transaction) -> Refusal | None:
        if self.nominated and place_where_nominated(self._session, transaction, self._placements):
            return None
        return place_gangs(self._session, self._placements, self.demand, transaction)

    def wanted(self) -> QuorumDemand:
        return self.demand

    def accept(self) -> None:
        if self.asks:
            bind_gangs(self._session, self._placements)
        for gang in self.unit.gangs:
            self._session.decisions.set_gang_verdict(gang, None)

    def refuse(self, fit_error: FitError) -> bool:
        self._session.refuse(self.unit, self.demand, fit_error)
        self._session.mark_attempted(self.unit)
        return False
