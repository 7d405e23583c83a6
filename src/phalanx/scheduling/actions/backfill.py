"""`backfill`: pods that ask for nothing but a slot fill what is left."""

from __future__ import annotations

from phalanx.cluster.pods.records import GangRecord
from phalanx.scheduling.actions.allocate import is_best_effort, walk
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import plan_of
from phalanx.scheduling.start_reservations.turns import expected_run_time

UNKNOWN = 2**62
"""Who does not say how long it runs goes last."""


def backfill(session: Session) -> None:
    """Places those whom others have left behind that must wait with a start kept for them, the shortest first, each
    only where it delays no kept start (EASY with shortest-job backfill: Tsafrir, Etsion and Feitelson 2007).

    Then zero-request pods: those that belong to no gang, and, where the policy has no `allocate` with which the
    others go, those of gangs too. Queues take turns, then gangs, then pods, as in every action; a gang's minimum
    holds here as well (Volcano, actions/backfill).
    """
    _shortest_first(session)
    units = [unit for unit in session.units if is_best_effort(unit) or _has_slots_to_fill(session, unit)]
    walk(session, units)


def _shortest_first(session: Session) -> None:
    plan = plan_of(session)
    if plan is None or not plan.settings.shortest_first:
        return
    left = [unit for unit in session.units if unit.key not in session.attempted and not is_best_effort(unit)]
    session.backfilling = True
    for unit in sorted(left, key=lambda each: (expected_run_time(each) or UNKNOWN, each.rank)):
        if session.plan.complete:
            walk(session, [unit])
    session.backfilling = False


def _has_slots_to_fill(session: Session, unit: QueuedUnit) -> bool:
    return session.best_effort_only and bool(unit.gangs) and all(_enough(session, gang) for gang in unit.gangs)


def _enough(session: Session, gang: GangRecord) -> bool:
    """Whether zero-request members alone can make up what the gang needs; the rest is not considered."""
    if gang.spec is None or gang.spec.problem is not None or gang.spec.subgroups:
        return False
    members, need = session.pending_in_order(gang), session.requirement(gang)
    if need.satisfied:
        return bool(members) or not gang.pending
    roles = [member.pod.role for member in members]
    return len(members) >= need.total and all(roles.count(role) >= least for role, least in need.roles)
