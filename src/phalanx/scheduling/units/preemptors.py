"""The preemptors of a unit that waits: for which of its pods others may be evicted."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.scheduling.gang_placement.surplus_domains import kind_of as pod_kind_of
from phalanx.scheduling.gang_placement.surplus_domains import starts_singly
from phalanx.scheduling.preemption.preemptor import PodPreemptor, Preemptor
from phalanx.scheduling.queue.demands import WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.unit import kind_of


def preemptor_of(session: Session, unit: QueuedUnit) -> Preemptor | None:
    """Return the preemptor of all that the unit needs; None where it needs nothing."""
    return kind_of(unit).preemptor(session)


def least_preemptor_of(session: Session, unit: QueuedUnit, reason: WaitReason) -> Preemptor | None:
    """Return the preemptor that asks for the least of what a unit waits for; None where no pod may be evicted."""
    if reason.for_surplus:
        return next((PodPreemptor(session, [unit], alike[0]) for alike in _surplus_of(session, unit)), None)
    return next(preemptors_of(session, unit, reason), None)


def preemptors_of(session: Session, unit: QueuedUnit, reason: WaitReason) -> Iterator[Preemptor]:
    """Yield the preemptors of a unit in the order in which they are tried.

    Of surplus these are as many equal members as there are, then fewer, down to one; then those of another kind.
    """
    if reason.for_surplus:
        for alike in _surplus_of(session, unit):
            most = len(alike)
            while most:
                yield PodPreemptor(session, [unit], *alike[:most])
                most //= 2
    elif reason.may_preempt:
        yield from kind_of(unit).preemptors(session)


def _surplus_of(session: Session, unit: QueuedUnit) -> Iterable[list[PodRecord]]:
    """Return the members above the minimum that may preempt, those together that are searched for as one."""
    found: dict[Hashable, list[PodRecord]] = {}
    for gang in unit.gangs:
        for member in session.pending_in_order(gang) if _surplus_preempts(session, gang) else ():
            if member.nomination is None and not member.pod.problem and starts_singly(session, member):
                kind = pod_kind_of(session, member)
                # The domain of a member that has to be near others depends on those: one after the other.
                alone = member if kind.area is not None else None
                question = gang, kind, member.pod.priority, member.pod.preempts, alone
                found.setdefault(question, []).append(member)
    return found.values()


def _surplus_preempts(session: Session, gang: GangRecord) -> bool:
    """Return whether members above the minimum may preempt.

    Those of Kubernetes' own groups do so each for itself, as in kube-scheduler; others are best effort, unless the
    policy says otherwise.
    """
    native = gang.spec is not None and gang.spec.rules.by_native_rules
    return native or session.plugin_runtime.policy.eviction.surplus
