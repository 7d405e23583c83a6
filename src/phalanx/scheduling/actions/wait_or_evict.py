"""Preempt or wait: what an eviction may cost for a unit that starts by itself soon."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.scheduling.framework.reservation_settings import ReservationSettings
from phalanx.scheduling.preemption.solution import Eviction
from phalanx.scheduling.preemption.victims import cluster_part
from phalanx.scheduling.queue.demands import WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.reservations.reservation import Reservation
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import plan_of
from phalanx.scheduling.start_reservations.turns import (
    entitled,
    parts_of,
    queue_of,
    run_limit,
)

_HOUR = 3600


def waits_instead(session: Session, unit: QueuedUnit, demand: WaitReason) -> bool:
    """Whether the unit starts by itself so soon that nobody is to go for it: by `waitInsteadSeconds` of the policy.

    Who waits for that reason has its start kept, whatever the depth: otherwise others could go before it again.
    """
    settings = _settings(session)
    if settings is None or not settings.wait_instead or plan_of(session) is None:
        return False
    soon = _start_within(session, unit, demand, session.now + settings.wait_instead)
    kept = _reservation_of(session, unit)
    if kept is not None:
        kept.spares = soon is not None
    return soon is not None


def costs_too_much(session: Session, units: Sequence[QueuedUnit], found: Eviction) -> bool:
    """Whether more work would be lost than `maxLostWorkPercent` of what the units gain by not waiting. Both are
    hours times the part of the cluster that is held, of those who go and of those who come."""
    settings = _settings(session)
    if settings is None or settings.most_lost_percent < 0 or not found.victims:
        return False
    starts = [kept for unit in units if (kept := _reservation_of(session, unit)) is not None]
    dear = loses_more_than(session, units, found.cost.lost_work, settings.most_lost_percent)
    for kept in starts if len(starts) == len(units) else ():
        kept.spares = dear
    if dear:
        session.searches.discard()
    return dear


def loses_more_than(session: Session, units: Sequence[QueuedUnit], lost_work: float, percent: int) -> bool:
    """Whether that is more than so many percent of what the units gain by starting now."""
    totals, gained = session.totals(), 0.0
    for unit in units:
        kept = _reservation_of(session, unit)
        if kept is None:
            # Nobody knows when it would start: no price is too high.
            return False
        parts = sum(part.count * cluster_part(part.pod_class.footprint, totals) for part in kept.parts)
        gained += max(0.0, kept.start - session.now) / _HOUR * parts
    return 100 * lost_work > percent * gained


def _settings(session: Session) -> ReservationSettings | None:
    return session.plugin_runtime.policy.reservations


def _reservation_of(session: Session, unit: QueuedUnit) -> Reservation | None:
    plan = plan_of(session)
    return plan.get(unit.key) if plan is not None else None


def _start_within(session: Session, unit: QueuedUnit, demand: WaitReason, latest: float) -> Reservation | None:
    """The start that is kept for the unit, if that is by then; where there is none yet, a new one."""
    plan = plan_of(session)
    assert plan is not None
    kept = plan.get(unit.key)
    if kept is None and demand.for_room and not plan.hopeless(unit.key) and entitled(session, plan, unit):
        parts, limit = parts_of(session, unit), run_limit(unit)
        window = plan.question(parts, limit) if parts else None
        if window is not None and window.start <= latest:
            priority = min(session.turn_priority(member) for member in unit.members)
            kept = plan.reserve(
                unit.key, unit.name, queue_of(session, unit), priority, parts, limit, session.quota_check
            )
    return kept if kept is not None and kept.start <= latest else None
