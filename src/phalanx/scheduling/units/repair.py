"""Repair moves: gangs that were placed earlier in the cycle move to other nodes, so that one more unit fits.

Nothing of the cycle is bound yet, so a move costs no write. Every moved gang stays placed as a whole, under all
filters, limits and rules, on nodes that it prefers at least as much, and in domains that are at most as wide. So no
unit is unplaced for another one, and no met preference is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from phalanx.cluster.accounts import add_amounts
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.resource_space import BoolArray, exact_sums
from phalanx.model.gang import GangKey
from phalanx.model.pod import ACTIVE, MemberState
from phalanx.scheduling.gang_placement.fallback import MOST_MEMBERS, MOST_NODES
from phalanx.scheduling.gang_placement.pod_sets import GangPlacement, demand_of, placed_again
from phalanx.scheduling.gang_placement.quorum_placement import place_gangs
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.attempt import Attempt

# Maximum number of placed gangs that are moved alone, the last placed first; then they are moved together.
_MOST_SINGLE_MOVES = 8
# Number of the cycle's last bindings among which gangs are moved.
_MOST_BINDINGS = 1024
# Maximum work of a cycle for moves, in checked nodes of exact searches. It is counted, so that equal cycles get
# equal results. A joint placement costs at least `_LEAST_WORK`.
_MOST_WORK = 150_000
_LEAST_WORK = 2_000

# Difference of preferences that rounding can cause.
_TOLERANCE = 1e-6

Move = tuple[PodRecord, int]


def place_with_moves(session: Session, attempt: Attempt, only_try: bool = False) -> bool:
    """Place a refused unit, and move gangs that were placed in this cycle. Return whether that was possible; with
    `only_try`, change nothing.

    Only small units on few nodes are tried, and only while free amounts suffice in sum.
    """
    placements = [placement for placement in attempt.least() if not placement.satisfied]
    reserved = session.placer.reserved
    if attempt.unit.composite is not None or not placements or (reserved is not None and reserved.active):
        return False
    if session.repair_work >= _MOST_WORK:
        return False
    rows = _eligible_rows(session, (batch.pod_class for placement in placements for batch in placement.batches))
    if int(rows.sum()) > MOST_NODES:
        return False
    movable = _movable(session)
    near = _on_rows(movable, rows)
    rows |= _eligible_rows(session, {record.pod_class for members in near for record in members})
    if not near or not _amounts_suffice(session, placements, rows):
        return False
    # Gangs that are in the way of the gangs on the unit's nodes move only together with these.
    others = [members for members in _on_rows(movable, rows) if members not in near]
    size = sum(placement.need.total for placement in placements)
    for gangs in _neighbourhoods(near, others, MOST_MEMBERS - size):
        if session.repair_work >= _MOST_WORK:
            break
        work = session.search_work
        moves = _search(session, placements, gangs)
        session.repair_work += _LEAST_WORK + session.search_work - work
        if moves is not None and not only_try and _apply(session, placements, moves):
            return True
        for placement in placements:
            placement.placed = []
        if moves is not None and only_try:
            return True
    return False


def _neighbourhoods(
    near: Sequence[list[PodRecord]], others: Sequence[list[PodRecord]], most: int
) -> Iterator[list[list[PodRecord]]]:
    """Yield gangs that move together, of at most `most` members: single gangs that are near, then as many as
    possible, the near ones first.
    """
    fitting = [members for members in near if len(members) <= most]
    for members in fitting[:_MOST_SINGLE_MOVES]:
        yield [members]
    together: list[list[PodRecord]] = []
    for members in (*fitting, *others):
        if len(members) <= most:
            together.append(members)
            most -= len(members)
    if len(together) > 1:
        yield together


def _on_rows(movable: Sequence[list[PodRecord]], rows: BoolArray) -> list[list[PodRecord]]:
    return [members for members in movable if any(rows[record.row] for record in members)]


def _movable(session: Session) -> list[list[PodRecord]]:
    """Return the members that each gang has placed in this cycle and that can move, the last placed gang first."""
    members: dict[GangKey, list[PodRecord]] = {}
    fixed: set[GangKey] = set()
    session.repair_work += min(len(session.plan.binds), _MOST_BINDINGS)
    for bind in session.plan.binds[-_MOST_BINDINGS:]:
        if bind.gang is None:
            continue
        record = session.state.pods.get(bind.uid)
        if record is None or bind.held or not _can_move(record):
            fixed.add(bind.gang)
        else:
            members.setdefault(bind.gang, []).append(record)
    movable = [
        placed
        for key, placed in members.items()
        if key not in fixed and _gang_can_move(session, session.state.gangs.get(key))
    ]
    movable.reverse()
    return movable


def _can_move(record: PodRecord) -> bool:
    """Return whether a pod has no allocations, no nominated node, and no rules about other pods but anti-affinity.

    The last holds for rules of other pods about this one too: they were checked where it is placed now.
    """
    pod_class = record.pod_class
    return (
        record.state is MemberState.ASSUMED
        and not record.pod.nominated_node
        and not pod_class.allocators
        and pod_class.affinity.repels_only
    )


def _gang_can_move(session: Session, gang: GangRecord | None) -> bool:
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
    transaction = session.state.transaction()
    transaction.remove([record for members in gangs for record in members])
    again = [placed_again(session, members) for members in gangs]
    together = [*placements, *again]
    refusal = place_gangs(session, together, demand_of(together), transaction)
    suitable = refusal is None and all(_is_as_good(session, placement) for placement in again)
    transaction.rollback()
    return [entry for placement in again for entry in placement.placed] if suitable else None


def _is_as_good(session: Session, placement: GangPlacement) -> bool:
    """Return whether the members of a gang prefer their new rows at least as much as their present ones."""
    for record, row in placement.placed:
        preference = session.placer.stated_preference(record.pod_class)
        if preference is not None and preference[row] < preference[record.row] - _TOLERANCE:
            return False
    if placement.area is None:
        return True
    moved = {record for record, _ in placement.placed}
    members = [member for member in placement.gang.members.values() if member.state in ACTIVE and member.row >= 0]
    new_rows = [row for _, row in placement.placed] + [member.row for member in members if member not in moved]
    for level in session.topology_domains.ladder(placement.area.rule).levels:
        if level.count == int((level.ids > 0).sum()):
            continue  # domains of one node: nobody has asked for these
        if level.shared(new_rows):
            return True
        if level.shared([member.row for member in members]):
            return False
    return True


def _apply(session: Session, placements: Sequence[GangPlacement], placed: Sequence[Move]) -> bool:
    """Move the pods, and place the unit where the search has placed it; return False, and undo it, if it does not
    fit there with the allocations that it gets now.
    """
    moves = [(record, row) for record, row in placed if record.row != row]
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


def _eligible_rows(session: Session, classes: Iterable[ClassRecord]) -> BoolArray:
    rows = np.zeros(session.state.nodes.capacity, dtype=np.bool_)
    for pod_class in classes:
        rows |= session.placer.eligible_rows(pod_class)
    return rows


def _amounts_suffice(session: Session, placements: Sequence[GangPlacement], rows: BoolArray) -> bool:
    """Return whether the idle amounts of the rows together suffice for the unit."""
    needed: dict[str, int] = {}
    for placement in placements:
        add_amounts(needed, placement.demand().least_amounts(), 1)
    nodes = session.state.nodes
    sums = dict(zip(nodes.space.names, exact_sums(nodes.idle[:, rows].clip(min=0)), strict=True))
    return all(amount <= sums[name] for name, amount in needed.items() if name in sums)
