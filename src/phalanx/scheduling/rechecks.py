"""Another look at what waits: verdicts stay true while the cluster changes."""

from __future__ import annotations

from phalanx.scheduling.actions.allocate import assess
from phalanx.scheduling.actions.composite import assess_composite
from phalanx.scheduling.actions.enqueue import objection
from phalanx.scheduling.actions.preempt import could_preempt
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members, nomination_verdict
from phalanx.scheduling.gang_placement.shared_verdicts import explain_unit
from phalanx.scheduling.ordering.failures import report_failure, silence_plugin
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

# How many demands of unschedulable units a cycle looks at again, so that what they were told stays true, and how
# many units it tells what is different now. The rest is for the next cycles.
_RECHECKS = 16
_RETOLD = 1000


def recheck(session: Session) -> None:
    """Look again at demands that were refused when the cluster was different, and publish the changes."""
    retold = 0
    for _ in range(_RECHECKS):
        stale = session.queue.next_outdated()
        if stale is None or session.out_of_time():
            return
        session.count_step()
        demand, unit = stale
        marks = session.decisions.begin_turn()
        try:
            with session.features.recheck(session, unit):
                fit_error = _fit_error_now(session, demand, unit)
        except Exception as error:
            session.decisions.undo_turn(marks)
            if silence_plugin(session, error):
                continue
            report_failure(session, f"another look at {unit.name}", error)
            known = session.queue.known_fit_error(demand)
            list(
                session.queue.update_fit_error(
                    demand, FitError(known.facts if known is not None else None, session.state.version)
                )
            )
            continue
        if fit_error is None:
            session.queue.activate_first(demand)
            return
        asker = session.queue.first_preemptor(demand)
        if asker is not None and could_preempt(session, asker, demand):
            session.queue.ask_preemption_for_all()
        for other in session.queue.update_fit_error(demand, fit_error):
            explain_unit(session, other, fit_error.facts)
            session.count_step()
            retold += 1
            if retold == _RETOLD or session.out_of_time():
                return


def _fit_error_now(session: Session, demand: WaitReason, unit: QueuedUnit) -> FitError | None:
    """Return why the demand of a unit cannot be met now; None if it can."""
    match demand:
        case PodDemand():
            return None if demand.fits(session) else FitError(*session.fit_errors.facts(demand, afresh=True))
        case SurplusDemand(kinds):
            fits = any(kind.fits(session) for kind in kinds)
            return None if fits else surplus_fit_error(session, demand, afresh=True)
        case QuorumDemand():
            return assess(session, unit, demand)
        case AwaitingAdmission():
            session.forget_totals()
            waiting = next(gang for gang in unit.gangs if awaits_admission(gang))
            if not session.plugin_runtime.admit(session, waiting):
                return FitError(objection(session, waiting), session.state.version)
            return None
        case Nominated(_, wanted, _):
            held = nominated_members(unit)
            if not held or demand.arrived(session.state.pods.unreleased) or wanted.upper_bound(session):
                return None
            return FitError(nomination_verdict(held), session.state.version)
        case CompositeDemand():
            return assess_composite(session, unit, demand)
        case QuotaBlocked():
            fault = next((fault for member in unit.members if (fault := session.blocked(member))), None)
            return FitError(fault, session.state.version) if fault is not None else None
    known = session.fit_errors.known(demand)
    return FitError(known.facts if known is not None else None, session.state.version)
