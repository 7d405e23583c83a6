"""Repair moves: gangs that were placed earlier in the cycle move to other nodes, so that one more unit fits.

Nothing of the cycle is bound yet, so a move costs no write. Every moved gang stays placed as a whole, under all
filters, limits and rules, and on nodes that it prefers at least as much. So no unit is unplaced for another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from phalanx.cluster.accounts import add_amounts
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.resource_space import BoolArray, exact_sums
from phalanx.model.gang import GangKey
from phalanx.model.pod import MemberState
from phalanx.scheduling.gang_placement.fallback import MOST_MEMBERS, MOST_NODES
from phalanx.scheduling.gang_placement.pod_sets import GangPlacement, demand_of, placed_again
from phalanx.scheduling.gang_placement.quorum_placement import place_gangs
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.attempt import Attempt

# Maximum number of placed gangs that are moved alone, the last placed first; then all of them are moved together.
_MOST_SINGLE_MOVES = 8
# Number of the cycle's last bindings among which gangs are moved.
_MOST_BINDINGS = 1024

Move = tuple[PodRecord, int]


def place_with_moves(session: Session, attempt: Attempt) -> bool:
    """Place a refused unit, and move gangs that were placed in this cycle. Return whether that was possible.

    Only small units on few nodes are tried, and only while free amounts suffice in sum.
    """
    placements = [placement for placement in attempt.least() if not placement.satisfied]
    reserved = session.placer.reserved
    if attempt.unit.composite is not None or not placements or (reserved is not None and reserved.active):
        return False
    rows = _eligible_rows(session, placements)
    if int(rows.sum()) > MOST_NODES:
        return False
    movable = _movable(session, rows)
    for members in movable:
        for pod_class in {record.pod_class for record in members}:
            rows = rows | session.placer.eligible_rows(pod_class)
    if not _amounts_suffice(session, placements, rows):
        return False
    for gangs in _neighbourhoods(movable):
        if not session.repairs_left:
            return False
        session.repairs_left -= 1
        moves = _search(session, placements, gangs)
        if moves is not None and _apply(session, placements, moves):
            return True
    for placement in placements:
        placement.placed = []
    return False


def _neighbourhoods(movable: Sequence[list[PodRecord]]) -> Iterator[list[list[PodRecord]]]:
    for members in movable[:_MOST_SINGLE_MOVES]:
        yield [members]
    if len(movable) > 1:
        yield list(movable)


def _movable(session: Session, rows: BoolArray) -> list[list[PodRecord]]:
    """Return the members that each gang has placed on the rows in this cycle, the last placed gang first."""
    members: dict[GangKey, list[PodRecord]] = {}
    fixed: set[GangKey] = set()
    for bind in session.plan.binds[-_MOST_BINDINGS:]:
        if bind.gang is None:
            continue
        record = session.state.pods.get(bind.uid)
        if record is None or record.state is not MemberState.ASSUMED or record.pod_class.allocators or bind.held:
            fixed.add(bind.gang)
        else:
            members.setdefault(bind.gang, []).append(record)
    movable = [
        placed
        for key, placed in members.items()
        if key not in fixed
        and _is_movable(session, session.state.gangs.get(key))
        and any(rows[record.row] for record in placed)
    ]
    movable.reverse()
    return movable


def _is_movable(session: Session, gang: GangRecord | None) -> bool:
    """Return whether a gang can move without an effect on its subgroups, placeholders and preferences."""
    if gang is None or gang.spec is None or gang.spec.subgroups or gang.placeholders:
        return False
    topology = gang.spec.topology
    if gang.spec.composite is not None or (topology is not None and (topology.preferred or not topology.hard)):
        return False
    return session.task_buckets(gang) is None


def _search(
    session: Session, placements: Sequence[GangPlacement], gangs: Sequence[list[PodRecord]]
) -> list[Move] | None:
    """Search a placement of the unit and of these gangs together. Return the moves of the gangs' pods."""
    moved = [record for members in gangs for record in members]
    if sum(placement.need.total for placement in placements) + len(moved) > MOST_MEMBERS:
        return None
    transaction = session.state.transaction()
    transaction.remove(moved)
    again = [placed_again(session, members) for members in gangs]
    together = [*placements, *again]
    refusal = place_gangs(session, together, demand_of(together), transaction)
    found = [entry for placement in again for entry in placement.placed]
    suitable = refusal is None and all(_prefers(session, record, row) for record, row in found)
    transaction.rollback()
    return [(record, row) for record, row in found if record.row != row] if suitable else None


def _prefers(session: Session, record: PodRecord, row: int) -> bool:
    """Return whether a pod prefers the row at least as much as its present one."""
    if row == record.row:
        return True
    peers = record.pod_class.spec.peers
    if peers.preferred or any(not spread.required for spread in peers.spread):
        return False
    preference = session.placer.class_view(record.pod_class).preference
    return preference is None or bool(preference[row] >= preference[record.row])


def _apply(session: Session, placements: Sequence[GangPlacement], moves: Sequence[Move]) -> bool:
    """Move the pods, and place the unit where the search has placed it; return False, and undo it, if it does not
    fit there with the allocations that it gets now.
    """
    former = [(record, record.row) for record, _ in moves]
    session.decisions.move(moves)
    transaction = session.state.transaction()
    for record, row in [entry for placement in placements for entry in placement.placed]:
        allowed = session.quota_check.room(record.charge_path, record.footprint)
        if not allowed or not session.placer.accepts(record.pod_class, row):
            transaction.rollback()
            session.decisions.move(former)
            return False
        transaction.place(record.pod_class, [record], [row])
    transaction.commit()
    return True


def _eligible_rows(session: Session, placements: Sequence[GangPlacement]) -> BoolArray:
    rows = np.zeros(session.state.nodes.capacity, dtype=np.bool_)
    for placement in placements:
        for batch in placement.batches:
            rows |= session.placer.eligible_rows(batch.pod_class)
    return rows


def _amounts_suffice(session: Session, placements: Sequence[GangPlacement], rows: BoolArray) -> bool:
    """Return whether the idle amounts of the rows together suffice for the unit."""
    needed: dict[str, int] = {}
    for placement in placements:
        add_amounts(needed, placement.demand().least_amounts(), 1)
    nodes = session.state.nodes
    sums = dict(zip(nodes.space.names, exact_sums(nodes.idle[:, rows].clip(min=0)), strict=True))
    return all(amount <= sums[name] for name, amount in needed.items() if name in sums)
