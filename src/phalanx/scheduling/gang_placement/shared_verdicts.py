"""Verdicts of all units that wait with the same demand, from one refusal."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.verdict import Verdict
from phalanx.scheduling.diagnosis.refusals import gang_verdict, pod_verdict
from phalanx.scheduling.diagnosis.shortage import Gap, NotAdmitted, Shortage
from phalanx.scheduling.diagnosis.verdicts import AWAITING_ADMISSION, awaiting_admission, waiting_for_gang_group
from phalanx.scheduling.gang_placement.composite_verdicts import CompositeFitError, explain_composite
from phalanx.scheduling.gang_placement.surplus_domains import surplus_domain
from phalanx.scheduling.queue.demands import PodDemand
from phalanx.scheduling.queue.unit import QueuedUnit, awaits_admission
from phalanx.scheduling.quota.limits import Blocked, BlockedByFifo, OverQuota, VictimsTerminating
from phalanx.scheduling.session.session import Session


def explain_unit(session: Session, unit: QueuedUnit, facts: object) -> None:
    """Set the verdicts of a unit by the facts of its refusal; some facts leave nothing new to say."""
    match facts:
        case Shortage() | OverQuota() if unit.pod is not None:
            session.decisions.set_pod_verdict(unit.pod, session.fit_errors.verdict(facts))
        case Blocked() | VictimsTerminating() | BlockedByFifo() if unit.pod is not None:
            session.decisions.set_pod_verdict(unit.pod, pod_verdict(facts, unit.pod))
        case Shortage() | OverQuota() | Gap() | Blocked():
            culprit = unit.gangs[facts.culprit]
            judge_unit(session, unit, culprit, gang_verdict(facts, culprit))
        case VictimsTerminating() | BlockedByFifo():
            for gang in unit.gangs:
                session.decisions.set_gang_verdict(gang, gang_verdict(facts, gang))
        case NotAdmitted():
            for gang in unit.gangs:
                told = gang.last_verdict[0] if gang.last_verdict is not None else None
                if (
                    awaits_admission(gang)
                    and gang.spec is not None
                    and (not told or told.code == AWAITING_ADMISSION)
                ):
                    session.decisions.set_gang_verdict(gang, awaiting_admission(gang, gang.spec, facts))
        case CompositeFitError():
            explain_composite(session, unit, facts)
        case dict():
            for gang in unit.gangs:
                explain_surplus(session, gang, facts)


def explain_surplus(session: Session, gang: GangRecord, facts: Mapping[PodDemand, Shortage | OverQuota]) -> None:
    """Judges the members above the minimum, by kind."""
    verdicts, rules = (
        {kind: session.fit_errors.verdict(reason) for kind, reason in facts.items()},
        surplus_domain(session, gang),
    )
    for member in gang.pending.values():
        verdict = verdicts.get(
            rules.kind(member) if rules is not None else PodDemand(member.pod_class, member.charge_path)
        )
        if verdict is not None and not member.pod.problem:
            session.decisions.set_pod_verdict(member, verdict)


def judge_unit(session: Session, unit: QueuedUnit, culprit: GangRecord, verdict: Verdict) -> None:
    """The gang that failed gets the verdict; its mates learn whom they wait for."""
    for gang in unit.gangs:
        if gang is culprit:
            session.decisions.set_gang_verdict(gang, verdict)
        elif gang.pending:
            session.decisions.set_gang_verdict(
                gang, waiting_for_gang_group(gang.title, culprit.title, verdict.message, verdict.change)
            )
