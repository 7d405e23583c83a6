"""Proof that moving pods lets a waiting unit start and that all moved pods fit again, tried on the live arrays."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.defragmentation.attempt import RelocationAttempt
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members
from phalanx.scheduling.preemption.preemptor import PodPreemptor, Preemptor
from phalanx.scheduling.preemption.solution import Placement
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.preemptors import preemptor_of

# With more waiting demands than this to check, the proof is given up.
_MOST_CHECKED = 1000


class ProvedMoves(msgspec.Struct, frozen=True):
    """Placement of the preemptor after the moves, and the target row of each moved pod."""

    preemptor: Preemptor
    placements: list[Placement]
    targets: dict[PodRecord, int]


def prove_moves(session: Session, unit: QueuedUnit, attempt: RelocationAttempt) -> ProvedMoves | None:
    """Return the proved moves; None if the proof fails.

    It fails if the unit's quorum does not fit on the rows of the attempt once the pods are removed, if another
    waiting unit would fit before the moved pods are placed again (and could use their room), or if they do not all
    fit then. Filters, scores, quotas and reservations apply as in any turn. All changes are rolled back.
    """
    preemptor = preemptor_of(session, unit)
    if preemptor is None:
        return None
    # Shares depend on total demand, so they must not be computed while pods are tentatively removed.
    for charge_path in {*preemptor.charge_paths, *(record.charge_path for record in attempt.moving)}:
        if charge_path is not None:
            session.quota_check.account_limits(charge_path)
    planned = np.zeros(session.state.nodes.capacity, dtype=np.bool_)
    planned[list(attempt.placed.values())] = True
    transaction = session.state.transaction()
    try:
        transaction.remove(list(attempt.moving))
        with session.features.turn(session, [unit]), session.placer.within(planned):
            if preemptor.place(session, transaction) is not None:
                return None
        if _another_unit_fits(session, unit, preemptor):
            return None
        targets = _place_again(session, transaction, attempt)
        return ProvedMoves(preemptor, preemptor.placed, targets) if targets is not None else None
    finally:
        transaction.rollback()


def _place_again(
    session: Session, transaction: Transaction, attempt: RelocationAttempt
) -> dict[PodRecord, int] | None:
    targets: dict[PodRecord, int] = {}
    for record in sorted(attempt.moving, key=lambda pod: (-attempt.size(pod), pod.pod.key)):
        pod_class = record.pod_class
        rows = session.placer.place(pod_class, 1)
        if not rows or not session.quota_check.room(record.charge_path, pod_class.footprint):
            return None
        transaction.place(pod_class, [record], rows)
        targets[record] = rows[0]
    return targets


def _another_unit_fits(session: Session, unit: QueuedUnit, preemptor: Preemptor) -> bool:
    for count, preemptor_of_other in enumerate(_other_preemptors(session, unit, preemptor)):
        if count == _MOST_CHECKED:
            return True
        transaction = session.state.transaction()
        try:
            if preemptor_of_other.place(session, transaction) is None:
                return True
        finally:
            transaction.rollback()
    return False


def _other_preemptors(session: Session, unit: QueuedUnit, preemptor: Preemptor) -> Iterator[Preemptor]:
    """Yield one preemptor per demand that waits for room or quota: quorums, and surplus members one by one."""
    placed = {record for record, _ in preemptor.placed}
    yield from _surplus(session, unit, placed)
    units = [waiting_unit for waiting_unit in session.units if waiting_unit.key in session.unschedulable]
    for candidate in (*units, *(unschedulable for _, unschedulable in session.queue.first_unschedulable(1))):
        if candidate.key == unit.key or nominated_members(candidate):
            continue
        demand = session.queue.demand_of(candidate.key)
        if candidate.key in session.unschedulable:
            demand = session.unschedulable[candidate.key][0]
        if demand is not None and demand.for_its_turn:
            continue
        if candidate.pod is not None:
            yield PodPreemptor(session, [candidate], candidate.pod)
        elif any(not session.requirement(gang).satisfied for gang in candidate.gangs):
            whole = preemptor_of(session, candidate)
            if whole is not None:
                yield whole
        yield from _surplus(session, candidate, placed)


def _surplus(session: Session, unit: QueuedUnit, placed: set[PodRecord]) -> Iterator[Preemptor]:
    """Yield a pending member of each class of gangs that have, or get, their quorum."""
    for gang in unit.gangs:
        if session.requirement(gang).satisfied or any(record.gang is gang for record in placed):
            kinds = {member.pod_class: member for member in session.pending_in_order(gang) if member not in placed}
            yield from (PodPreemptor(session, [unit], member) for member in kinds.values())
