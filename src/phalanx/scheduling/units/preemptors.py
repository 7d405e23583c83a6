"""Preemptors of a waiting unit: the pods for which victims can be evicted."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.scheduling.gang_placement.surplus_domains import kind_of as pod_kind_of
from phalanx.scheduling.gang_placement.surplus_domains import starts_singly
from phalanx.scheduling.ordering.entitlements import copies_within_share
from phalanx.scheduling.preemption.preemptor import PodPreemptor, Preemptor
from phalanx.scheduling.queue.demands import WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.quota.limits import UNLIMITED
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.unit import kind_of


def preemptor_of(session: Session, unit: QueuedUnit) -> Preemptor | None:
    """Return the preemptor for all required pods of the unit; None if it needs none."""
    return kind_of(unit).preemptor(session)


def least_preemptor_of(session: Session, unit: QueuedUnit, reason: WaitReason) -> Preemptor | None:
    """Return the preemptor with the smallest demand of a unit; None if its pods may not preempt."""
    if reason.for_surplus:
        groups = (alike for alike in _surplus_of(session, unit) if _due(session, alike[0]))
        return next((surplus_preemptor(session, unit, alike[:1]) for alike in groups), None)
    return next(preemptors_of(session, unit, reason), None)


def preemptors_of(session: Session, unit: QueuedUnit, reason: WaitReason) -> Iterator[Preemptor]:
    """Yield the preemptors of a unit in the order in which they are tried.

    Of surplus: all equal members that are due, then half of them, down to one member; then members of another kind.
    """
    if reason.for_surplus:
        for alike in _surplus_of(session, unit):
            count = min(len(alike), _due(session, alike[0]))
            while count:
                yield surplus_preemptor(session, unit, alike[:count])
                count //= 2
    elif reason.may_preempt:
        yield from kind_of(unit).preemptors(session)


def _surplus_of(session: Session, unit: QueuedUnit) -> Iterable[list[PodRecord]]:
    """Return the surplus members that can preempt, grouped by equal demand."""
    groups: dict[Hashable, list[PodRecord]] = {}
    for gang in unit.gangs:
        for member in session.pending_in_order(gang) if _surplus_preempts(session, gang) else ():
            if member.nomination is None and not member.pod.problem and starts_singly(session, member):
                kind = pod_kind_of(session, member)
                # The domain of a member with an area depends on the members placed before: one member at a time.
                single = member if kind.area is not None else None
                group = gang, kind, member.pod.priority, member.pod.preempts, single
                groups.setdefault(group, []).append(member)
    return groups.values()


def surplus_preemptor(session: Session, unit: QueuedUnit, members: Sequence[PodRecord]) -> PodPreemptor:
    """Return the preemptor of equal surplus members of one gang."""
    gang = members[0].gang
    return PodPreemptor(
        session, [unit], *members, surplus=gang is not None and not _preempts_by_priority(session, gang)
    )


def _surplus_preempts(session: Session, gang: GangRecord) -> bool:
    """Return whether surplus members can evict pods: their share is reclaimed, and `drf` can level gangs."""
    eviction = session.plugin_runtime.policy.eviction
    return _preempts_by_priority(session, gang) or eviction.reclaim or eviction.levels


def _preempts_by_priority(session: Session, gang: GangRecord) -> bool:
    """Return whether surplus members preempt as other pods do.

    Surplus of Kubernetes' own groups preempts one pod at a time, as in kube-scheduler. Other surplus is best effort
    unless the policy allows preemption.
    """
    native = gang.spec is not None and gang.spec.rules.by_native_rules
    return native or session.plugin_runtime.policy.eviction.surplus


def _due(session: Session, member: PodRecord) -> int:
    """Return an upper bound on the number of surplus members like this one that can evict pods."""
    gang = member.gang
    if gang is None or _preempts_by_priority(session, gang) or session.plugin_runtime.policy.eviction.levels:
        return UNLIMITED
    charge_path = session.charge_path(member)
    table = session.state.victim_table()
    present = session.victim_classes().lowest_priority(table)
    if not present.quotas and present.queues <= {charge_path.queue}:
        return 0  # nothing is lent
    return copies_within_share(session, charge_path, member.footprint.amounts)
