"""Why a unit that waits would not get what it asks for now: tried anew, and nothing is placed."""

from __future__ import annotations

from phalanx.scheduling.gang_placement.composite_attempt import composite_attempt_of, composite_fit_error
from phalanx.scheduling.gang_placement.composite_placer import CompositePlacer, hold_up
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members, nomination_verdict
from phalanx.scheduling.gang_placement.quorum_placement import GangPlacement, place_gangs
from phalanx.scheduling.ordering.surplus import surplus_fit_error
from phalanx.scheduling.queue.demands import (
    AwaitingAdmission,
    CompositeDemand,
    Nominated,
    PodDemand,
    QuorumDemand,
    QuotaBlocked,
    SurplusDemand,
    WaitReason,
)
from phalanx.scheduling.queue.unit import QueuedUnit, awaits_admission
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.session.session import Session


def refusal_now(session: Session, unit: QueuedUnit, reason: WaitReason) -> FitError | None:
    """Return why a unit that waits for this reason would be refused now; None if it would get something."""
    version = session.state.version
    match reason:
        case PodDemand():
            return None if reason.fits(session) else FitError(*session.fit_errors.facts(reason, afresh=True))
        case SurplusDemand(kinds):
            fits = any(kind.fits(session) for kind in kinds)
            return None if fits else surplus_fit_error(session, reason, afresh=True)
        case QuorumDemand():
            return _quorum_refusal(session, unit, reason)
        case CompositeDemand():
            return _composite_refusal(session, unit, reason)
        case AwaitingAdmission():
            session.forget_totals()
            waiting = next(gang for gang in unit.gangs if awaits_admission(gang))
            admits = session.plugin_runtime.admit(session, waiting)
            return None if admits else FitError(session.admission_refusal(waiting), version)
        case Nominated():
            held = nominated_members(unit)
            if not held or reason.bound_for(session, unit):
                return None
            return FitError(nomination_verdict(held), version)
        case QuotaBlocked():
            fault = next((fault for member in unit.members if (fault := session.blocked(member))), None)
            return FitError(fault, version) if fault is not None else None
    # Time or another unit ends the other reasons: what was found holds.
    known = session.fit_errors.known(reason)
    return FitError(known.facts if known is not None else None, version)


def _quorum_refusal(session: Session, unit: QueuedUnit, demand: QuorumDemand) -> FitError | None:
    transaction = session.state.transaction()
    facts = place_gangs(session, [GangPlacement(session, gang) for gang in unit.gangs], demand, transaction)
    transaction.rollback()
    return session.fit_errors.record(demand, facts) if facts is not None else None


def _composite_refusal(session: Session, unit: QueuedUnit, demand: CompositeDemand) -> FitError | None:
    """Return why nothing more of a tree can be placed; None where its demand has changed as well."""
    attempt = composite_attempt_of(session, unit)
    if attempt is None or attempt.demand != demand or hold_up(attempt.tree, attempt.placements, attempt.lacks):
        return None
    if demand.has_blocked_gang:
        return None
    transaction = session.state.transaction()
    placer = CompositePlacer(session, attempt.placements, attempt.lacks, transaction)
    holds = placer.run(attempt.tree)
    placed = transaction.placed
    transaction.rollback()
    if placed:
        return None
    return session.fit_errors.record(demand, composite_fit_error(unit, attempt, placer.lacks, holds))
