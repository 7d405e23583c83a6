"""Obstacles of a gang group: what forbids it to be placed, whatever room there is."""

from __future__ import annotations

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import MOST_GANGS
from phalanx.model.verdict import Verdict
from phalanx.scheduling.diagnosis.shortage import NotAdmitted
from phalanx.scheduling.diagnosis.verdicts import (
    awaiting_admission,
    held_by_problem,
    members_missing,
    too_many_tied,
    unreadable_members,
    unrequited,
    waiting_for_gang_group,
)
from phalanx.scheduling.gang_placement.shared_verdicts import explain_unit, judge_unit
from phalanx.scheduling.queue.demands import AwaitingAdmission, QuotaBlocked
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session


def has_obstacle(session: Session, unit: QueuedUnit) -> bool:
    """Return whether something forbids the unit to be placed; set the verdicts that say what."""
    asks = any(gang.pending for gang in unit.gangs)
    if unit.oversized_group:
        for gang in unit.gangs:
            session.decisions.set_gang_verdict(gang, too_many_tied(gang.title, MOST_GANGS))
        return True
    for gang in unit.gangs:
        spec = gang.spec
        assert spec is not None
        verdict: Verdict | None = None
        if spec.problem is not None:
            verdict = held_by_problem(gang, spec)
        elif not (spec.admitted or gang.admitted):
            if _held_by_account(session, unit, gang, asks=True):
                return True
            if "enqueue" in session.plugin_runtime.policy.actions:
                demand = admission(session, unit, gang)
                fit_error = session.fit_errors.known(demand)
                if fit_error is None:
                    fit_error = session.fit_errors.record(
                        demand, session.admission_refusal(gang), session.totals_version
                    )
                assert isinstance(fit_error.facts, NotAdmitted)
                verdict = awaiting_admission(gang, spec, fit_error.facts)
                session.set_unschedulable(unit, demand, fit_error)
            else:
                session.admit(gang)
        if verdict is None and asks:
            need = session.requirement(gang)
            verdict = members_missing(gang, spec, need) or unreadable_members(gang, need)
            if verdict is None and not need.repair and _held_by_account(session, unit, gang):
                return True
        if verdict is not None:
            judge_unit(session, unit, gang, verdict)
            return True
    for gang in unit.gangs if unit.missing or not asks else ():
        session.decisions.set_gang_verdict(gang, _missing_mate(session, unit, gang.title) if unit.missing else None)
    return bool(unit.missing) or not asks


def _missing_mate(session: Session, unit: QueuedUnit, gang: str) -> Verdict:
    """Return which gang of the gang group does not exist, or does not name the others in turn."""
    mate = unit.missing[0]
    record = session.state.gangs.get(mate)
    if record is None or record.spec is None:
        return waiting_for_gang_group(gang, str(mate), "no pod or object declares it")
    by = next(each.title for each in unit.gangs if each.spec is not None and mate in each.spec.gang_group)
    return unrequited(gang, record.title, by)


def _held_by_account(session: Session, unit: QueuedUnit, gang: GangRecord, *, asks: bool = False) -> bool:
    """Return whether nothing new may be charged to the gang's accounts; set the verdict that says why.

    A group that waits to be admitted `asks` before it has pods.
    """
    held = session.blocked(gang) if gang.pending or asks else None
    if held is None:
        return False
    facts = msgspec.structs.replace(held, culprit=unit.gangs.index(gang))
    demand = QuotaBlocked(session.charge_path(gang))
    explain_unit(session, unit, facts)
    session.set_unschedulable(unit, demand, session.fit_errors.record(demand, facts))
    return True


def admission(session: Session, unit: QueuedUnit, gang: GangRecord) -> AwaitingAdmission:
    """Return what a group of the unit that awaits admission asks for."""
    spec = gang.spec
    assert spec is not None
    keys = session.plugin_runtime.admission_keys(gang)
    return AwaitingAdmission(spec.queue, spec.min_resources or (), keys, len(unit.gangs) > 1)
