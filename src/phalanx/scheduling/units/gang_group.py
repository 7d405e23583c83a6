"""Gang group unit, usually of one gang: the quorums of all its gangs are placed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.transaction import Transaction
from phalanx.model.gang import MOST_GANGS
from phalanx.model.verdict import Verdict, gang_object
from phalanx.scheduling.diagnosis.verdicts import (
    held_by_problem,
    members_missing,
    too_many_tied,
    unreadable_members,
    unrequited,
)
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members, place_where_nominated
from phalanx.scheduling.gang_placement.pod_sets import GangPlacement, demand_of
from phalanx.scheduling.gang_placement.quorum_placement import place_gangs
from phalanx.scheduling.preemption.preemptor import QuorumPreemptor
from phalanx.scheduling.queue.demands import AwaitingAdmission, QuorumDemand, QuotaBlocked, WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.refusals.refusal import Refusal, verdicts_around, waiting_for_gang_group
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.attempt import bind_gangs
from phalanx.scheduling.units.unit import GangsUnit


class GangGroupUnit(GangsUnit):
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
        """Yield preemptors of the members of highest priority, then also of lower priorities.

        A placed member always outranks its victims.
        """
        whole = self.preemptor(session)
        lower = [priority for priority in whole.unstated_priorities if priority < whole.priority]
        if not lower:
            yield whole
            return
        for lowest in (whole.priority, *sorted(lower, reverse=True)):
            yield QuorumPreemptor(session, self, lowest)


class GangGroupAttempt:
    """An attempt to place every quorum of a gang group."""

    def __init__(self, session: Session, unit: QueuedUnit) -> None:
        self.unit = unit
        self._session = session
        self._placements = [GangPlacement(session, gang) for gang in unit.gangs]
        self.asks = not all(placement.satisfied for placement in self._placements)
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


def has_obstacle(session: Session, unit: QueuedUnit) -> bool:
    """Return whether an obstacle prevents a placement of the gang group; set the verdicts that name the
    obstacle."""
    asks = any(gang.pending for gang in unit.gangs)
    if unit.oversized_group:
        for gang in unit.gangs:
            session.decisions.set_gang_verdict(
                gang, too_many_tied(gang.title, MOST_GANGS, (gang_object(gang.key),))
            )
        return True
    for gang in unit.gangs:
        spec = gang.spec
        assert spec is not None
        verdict: Verdict | None = None
        if spec.problem is not None:
            verdict = held_by_problem(gang, spec)
        elif not (gang.admitted or (spec.admitted and not gang.withdrawn)):
            if _refuse_if_blocked(session, unit, gang, asks=True):
                return True
            if "enqueue" in session.plugin_runtime.policy.actions:
                demand = admission(session, unit, gang)
                fit_error = session.fit_errors.known(demand)
                if fit_error is None:
                    fit_error = session.fit_errors.record(
                        demand, session.admission_refusal(gang), session.totals_version
                    )
                assert fit_error.facts is not None
                verdict = fit_error.facts.gang_verdict(gang)
                session.set_unschedulable(unit, demand, fit_error)
            else:
                session.admit(gang)
        if verdict is None and asks:
            need = session.requirement(gang)
            verdict = members_missing(gang, spec, need) or unreadable_members(gang, need)
            if verdict is None and not need.repair and _refuse_if_blocked(session, unit, gang):
                return True
        if verdict is not None:
            for mate, reason in verdicts_around(unit.gangs, gang, verdict):
                session.decisions.set_gang_verdict(mate, reason)
            return True
    for gang in unit.gangs if unit.missing or not asks else ():
        session.decisions.set_gang_verdict(gang, _missing_mate(session, unit, gang.title) if unit.missing else None)
    return bool(unit.missing) or not asks


def _missing_mate(session: Session, unit: QueuedUnit, gang: str) -> Verdict:
    """Return the verdict about a gang that does not exist or does not name the other gangs of the group."""
    mate = unit.missing[0]
    objects = tuple(gang_object(key) for key in (*(member.key for member in unit.gangs), mate))
    record = session.state.gangs.get(mate)
    if record is None or record.spec is None:
        return waiting_for_gang_group(gang, str(mate), "no pod or object declares it", objects=objects)
    by = next(
        gang_of_group.title
        for gang_of_group in unit.gangs
        if gang_of_group.spec is not None and mate in gang_of_group.spec.gang_group
    )
    return unrequited(gang, record.title, by, objects)


def _refuse_if_blocked(session: Session, unit: QueuedUnit, gang: GangRecord, *, asks: bool = False) -> bool:
    """Return whether a queue or quota of the gang is blocked; if so, refuse the gang group for this reason.

    With `asks`, a group without pods that waits for admission is checked too.
    """
    refusal = session.blocked(gang) if gang.pending or asks else None
    if refusal is None:
        return False
    facts = msgspec.structs.replace(refusal, culprit=unit.gangs.index(gang))
    demand = QuotaBlocked(session.charge_path(gang))
    session.refuse(unit, demand, session.fit_errors.record(demand, facts))
    return True


def admission(session: Session, unit: QueuedUnit, gang: GangRecord) -> AwaitingAdmission:
    """Return the wait reason of a gang that waits for admission of its pods' creation."""
    spec = gang.spec
    assert spec is not None
    keys = session.plugin_runtime.admission_keys(gang)
    return AwaitingAdmission(spec.queue, spec.min_resources or (), keys, len(unit.gangs) > 1)
