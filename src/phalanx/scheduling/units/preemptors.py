"""The preemptors of a unit: for which of its pods others may be evicted."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.scheduling.gang_placement.composite_attempt import composite_attempt_of
from phalanx.scheduling.gang_placement.surplus_domains import kind_of, starts_singly
from phalanx.scheduling.preemption.preemptor import PodPreemptor, Preemptor, QuorumPreemptor, stated_priority
from phalanx.scheduling.queue.demands import (
    CompositeDemand,
    PodDemand,
    QuorumDemand,
    SurplusDemand,
    WaitReason,
)
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session


def least_preemptor_of(session: Session, unit: QueuedUnit, demand: WaitReason) -> Preemptor | None:
    """For whom of a unit that waits with this demand others may have to go, at the least; None where nobody may."""
    if isinstance(demand, SurplusDemand):
        return next((PodPreemptor(session, [unit], alike[0]) for alike in _surplus_of(session, unit)), None)
    return next(preemptors_of(session, unit, demand), None)


def preemptors_of(session: Session, unit: QueuedUnit, demand: WaitReason) -> Iterator[Preemptor]:
    """All for whom others may have to go, to be asked about in this order: of surplus as many at once as are alike,
    then fewer, down to one; then those of another kind."""
    match demand:
        case PodDemand() if unit.pod is not None:
            yield PodPreemptor(session, [unit], unit.pod)
        case QuorumDemand():
            yield from _quorum_preemptors(session, unit)
        case CompositeDemand():
            attempt = composite_attempt_of(session, unit)
            core = attempt.core_unit(unit) if attempt is not None else None
            if core is not None:
                yield QuorumPreemptor(session, core)
        case SurplusDemand():
            for alike in _surplus_of(session, unit):
                most = len(alike)
                while most:
                    yield PodPreemptor(session, [unit], *alike[:most])
                    most //= 2


def _surplus_of(session: Session, unit: QueuedUnit) -> Iterable[list[PodRecord]]:
    """The members above the minimum that may have others evicted, those that are one question together."""
    found: dict[Hashable, list[PodRecord]] = {}
    for gang in unit.gangs:
        for member in session.pending_in_order(gang) if _surplus_preempts(session, gang) else ():
            if member.nomination is None and not member.pod.problem and starts_singly(session, member):
                kind = kind_of(session, member)
                # What has to be near others chooses its domain by who is there: one after the other.
                alone = member if kind.area is not None else None
                question = gang, kind, member.pod.priority, member.pod.preempts, alone
                found.setdefault(question, []).append(member)
    return found.values()


def _surplus_preempts(session: Session, gang: GangRecord) -> bool:
    """Whether members above the minimum may have others evicted. Those of Kubernetes' own groups preempt each by
    itself, as in kube-scheduler; others best work_limit only, unless the policy says otherwise."""
    native = gang.spec is not None and gang.spec.rules.by_native_rules
    return native or session.plugin_runtime.policy.eviction.surplus


def _quorum_preemptors(session: Session, unit: QueuedUnit) -> Iterator[QuorumPreemptor]:
    """A unit whose members differ in priority asks for its highest first, then with lower ones as well: whoever is
    placed outranks those who go."""
    composites = session.state.gangs.composites
    found = QuorumPreemptor(session, unit)
    unstated = [
        placement
        for placement in found.placements
        if not placement.need.satisfied and stated_priority(placement.gang, composites) is None
    ]
    priorities = {
        member.pod.priority for placement in unstated for batch in placement.batches for member in batch.members
    }
    lower = sorted((each for each in priorities if each < found.priority), reverse=True)
    if not lower:
        yield found
        return
    for least in (found.priority, *lower):
        yield QuorumPreemptor(session, unit, least)
