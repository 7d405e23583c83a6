"""The proof that moving pods lets a waiting unit start and costs nobody a place: tried on the live arrays."""

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

# Where more who wait would have to be asked whether they take the room, nothing is proved.
_MOST_ASKED = 1000


class ProvedMoves(msgspec.Struct, frozen=True):
    """Who starts, where, if those who move leave; and where each of those fits then."""

    preemptor: Preemptor
    placements: list[Placement]
    targets: dict[PodRecord, int]


def prove_moves(session: Session, unit: QueuedUnit, attempt: RelocationAttempt) -> ProvedMoves | None:
    """None where, with those who move gone, the unit's quorum is not placed on the rows of the attempt; or somebody
    else who waits would fit before they are back (and could take what they need); or they do not all fit then.

    Filters, scores, quotas and what is kept for others hold as in any turn. In the end everything is as it was.
    """
    preemptor = preemptor_of(session, unit)
    if preemptor is None:
        return None
    # Shares follow from what everybody wants: they must not be worked out while some are tentatively gone.
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
        if _somebody_else_fits(session, unit, preemptor):
            return None
        targets = _place_again(session, transaction, attempt)
        return ProvedMoves(preemptor, preemptor.placed, targets) if targets is not None else None
    finally:
        transaction.rollback()


def _place_again(
    session: Session, transaction: Transaction, attempt: RelocationAttempt
) -> dict[PodRecord, int] | None:
    targets: dict[PodRecord, int] = {}
    for record in sorted(attempt.moving, key=lambda each: (-attempt.size(each), each.pod.key)):
        pod_class = record.pod_class
        rows = session.placer.place(pod_class, 1)
        if not rows or not session.quota_check.room(record.charge_path, pod_class.footprint):
            return None
        transaction.place(pod_class, [record], rows)
        targets[record] = rows[0]
    return targets


def _somebody_else_fits(session: Session, unit: QueuedUnit, preemptor: Preemptor) -> bool:
    for asked, other in enumerate(_others(session, unit, preemptor)):
        if asked == _MOST_ASKED:
            return True
        transaction = session.state.transaction()
        try:
            if other.place(session, transaction) is None:
                return True
        finally:
            transaction.rollback()
    return False


def _others(session: Session, unit: QueuedUnit, preemptor: Preemptor) -> Iterator[Preemptor]:
    """Those who wait for room or quota, one of each demand: quorums, and members above them one by one."""
    placed = {record for record, _ in preemptor.placed}
    yield from _surplus(session, unit, placed)
    units = [each for each in session.units if each.key in session.unschedulable]
    for other in (*units, *(unschedulable for _, unschedulable in session.queue.first_unschedulable(1))):
        if other.key == unit.key or nominated_members(other):
            continue
        demand = session.queue.demand_of(other.key)
        if other.key in session.unschedulable:
            demand = session.unschedulable[other.key][0]
        if demand is not None and demand.for_its_turn:
            continue
        if other.pod is not None:
            yield PodPreemptor(session, [other], other.pod)
        elif any(not session.requirement(gang).satisfied for gang in other.gangs):
            whole = preemptor_of(session, other)
            if whole is not None:
                yield whole
        yield from _surplus(session, other, placed)


def _surplus(session: Session, unit: QueuedUnit, placed: set[PodRecord]) -> Iterator[Preemptor]:
    """A member of each class that a gang has pending although it has, or gets, its quorum."""
    for gang in unit.gangs:
        if session.requirement(gang).satisfied or any(record.gang is gang for record in placed):
            kinds = {member.pod_class: member for member in session.pending_in_order(gang) if member not in placed}
            yield from (PodPreemptor(session, [unit], member) for member in kinds.values())
