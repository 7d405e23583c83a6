"""Refusals of waiting gangs and pods, computed for the current state without placing pods."""

from __future__ import annotations

from phalanx.scheduling.gang_placement.nominated_placement import nominated_members, nomination_verdict
from phalanx.scheduling.ordering.surplus import surplus_fit_error
from phalanx.scheduling.queue.demands import AwaitingAdmission, Nominated, QuotaBlocked, SurplusDemand, WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit, awaits_admission
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.unit import kind_of


def refusal_now(session: Session, unit: QueuedUnit, reason: WaitReason) -> FitError | None:
    """Return the refusal that a gang or pod with this wait reason would get now; None if a part of it fits."""
    version = session.state.version
    match reason:
        case SurplusDemand(kinds):
            fits = any(kind.fits(session) for kind in kinds)
            return None if fits else surplus_fit_error(session, reason, afresh=True)
        case AwaitingAdmission():
            session.forget_totals()
            waiting = next(gang for gang in unit.gangs if awaits_admission(gang))
            admits = session.plugin_runtime.admit(session, waiting)
            return None if admits else FitError(session.admission_refusal(waiting), version)
        case Nominated():
            nominated = nominated_members(unit)
            if not nominated or reason.bound_for(session, unit):
                return None
            return FitError(nomination_verdict(nominated), version)
        case QuotaBlocked():
            fault = next((fault for member in unit.members if (fault := session.blocked(member))), None)
            return FitError(fault, version) if fault is not None else None
    if reason.may_preempt:  # `reason` is a demand, not a cause without an amount
        return kind_of(unit).demand_refusal(session, reason)
    # Time or another unit ends the other wait reasons, so the recorded refusal is still valid.
    known = session.fit_errors.known(reason)
    return FitError(known.facts if known is not None else None, version)
