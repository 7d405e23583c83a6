"""Action `backfill`: fills gaps with short units and with pods without resource requests."""

from __future__ import annotations

from phalanx.cluster.pods.records import GangRecord
from phalanx.scheduling.actions.allocate import is_best_effort, walk
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import plan_of
from phalanx.scheduling.start_reservations.unit_request import expected_run_time

UNKNOWN = 2**62
"""Assumed run time of units that do not declare one: they sort last."""


def backfill(session: Session) -> None:
    """Backfill units behind a unit with a start reservation, the shortest first.

    A unit is placed only if it delays no start reservation (EASY with shortest-job backfill: Tsafrir, Etsion and
    Feitelson 2007). Then pods without resource requests are placed: single pods, and gang members if the policy has
    no `allocate` for other members. Queues take turns, then gangs, then pods, as in every action. The minimum of a
    gang applies here too (Volcano, actions/backfill).
    """
    _shortest_first(session)
    units = [unit for unit in session.units if is_best_effort(unit) or _best_effort_only(session, unit)]
    walk(session, units)


def _shortest_first(session: Session) -> None:
    plan = plan_of(session)
    if plan is None or not plan.settings.shortest_first:
        return
    remaining = [unit for unit in session.units if unit.key not in session.attempted and not is_best_effort(unit)]
    session.backfilling = True
    for unit in sorted(
        remaining, key=lambda waiting_unit: (expected_run_time(waiting_unit) or UNKNOWN, waiting_unit.rank)
    ):
        if session.plan.complete:
            walk(session, [unit])
    session.backfilling = False


def _best_effort_only(session: Session, unit: QueuedUnit) -> bool:
    return (
        session.best_effort_only
        and bool(unit.gangs)
        and all(_best_effort_suffices(session, gang) for gang in unit.gangs)
    )


def _best_effort_suffices(session: Session, gang: GangRecord) -> bool:
    """Return whether members without resource requests alone can reach the gang's quorum."""
    if gang.spec is None or gang.spec.problem is not None or gang.spec.subgroups:
        return False
    members, need = session.pending_in_order(gang), session.requirement(gang)
    if need.satisfied:
        return bool(members) or not gang.pending
    roles = [member.pod.role for member in members]
    return len(members) >= need.total and all(roles.count(role) >= minimum for role, minimum in need.roles)
