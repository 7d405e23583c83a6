"""Bindings of the gangs that one decision has placed."""

from __future__ import annotations

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.pod import PlanMark
from phalanx.scheduling.gang_placement.quorum_placement import GangPlacement
from phalanx.scheduling.gangs.quorum import QuorumRequirement, new_mark, unfinished_plan
from phalanx.scheduling.session.session import Session


def bind_gangs(session: Session, placements: list[GangPlacement]) -> None:
    """Record the bindings of all gangs that one decision has placed, and the room of members that are expected."""
    prepares = any(record.allocated for placement in placements for record, _ in placement.placed)
    together = session.decisions.next_cause() if prepares else ""
    for placement in placements:
        placed, held = placement.placed, tuple[str, ...]()
        if placement.gang.placeholders:
            placed = [entry for entry in placed if not entry[0].pod.placeholder]
            held = _hold(session, placement)
        mark = _mark(session, placement.gang, placement.need, len(placement.placed) - len(placed))
        session.decisions.bind_all(placed, placement.gang.key, mark, together, held)


def _hold(session: Session, placement: GangPlacement) -> tuple[str, ...]:
    """Hold the room of members that are expected; return their nodes, which the bindings name."""
    for record, row in placement.placed:
        if record.pod.placeholder:
            session.decisions.hold(record, row)
    return tuple(sorted(each.assumed_node for each in placement.gang.placeholders.values() if each.assumed_node))


def _mark(session: Session, gang: GangRecord, need: QuorumRequirement, expected: int) -> PlanMark | None:
    """Return the mark that proves, should the rest of the plan be cut off, that the whole quorum was placed.

    `expected` members of it do not exist yet.
    """
    assert gang.spec is not None
    if need.repair:
        return unfinished_plan(gang, gang.spec)
    now, size = int(session.now), need.total - expected
    return new_mark(gang.spec, session.decisions.cause, size, now) if size > 1 else None
