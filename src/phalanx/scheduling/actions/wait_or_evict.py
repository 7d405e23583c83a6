"""Decision between eviction and waiting, for a unit that will start soon without evictions."""

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
from phalanx.scheduling.start_reservations.turns import entitled
from phalanx.scheduling.start_reservations.unit_request import queue_of, requested_parts, run_limit

_HOUR = 3600


def waits_instead(session: Session, unit: QueuedUnit, demand: WaitReason) -> bool:
    """Return whether the unit starts without evictions within the policy's `waitInsteadSeconds`.

    Such a unit gets a start reservation at any depth; otherwise other units could overtake it again.
    """
    settings = _settings(session)
    if settings is None or not settings.wait_instead or plan_of(session) is None:
        return False
    soon = _start_within(session, unit, demand, session.now + settings.wait_instead)
    reservation = _reservation_of(session, unit)
    if reservation is not None:
        reservation.spares = soon is not None
    return soon is not None


def costs_too_much(session: Session, units: Sequence[QueuedUnit], eviction: Eviction) -> bool:
    """Return whether the lost work exceeds `maxLostWorkPercent` of the time that the units gain.

    Both are hours times the part of the cluster that the victims, or the units, use.
    """
    settings = _settings(session)
    if settings is None or settings.most_lost_percent < 0 or not eviction.victims:
        return False
    reservations = [reservation for unit in units if (reservation := _reservation_of(session, unit)) is not None]
    too_costly = loses_more_than(session, units, eviction.cost.lost_work, settings.most_lost_percent)
    for reservation in reservations if len(reservations) == len(units) else ():
        reservation.spares = too_costly
    if too_costly:
        session.searches.discard()
    return too_costly


def loses_more_than(session: Session, units: Sequence[QueuedUnit], lost_work: float, percent: int) -> bool:
    """Return whether `lost_work` exceeds `percent` of the time that the units gain by starting now."""
    totals, gained = session.totals(), 0.0
    for unit in units:
        reservation = _reservation_of(session, unit)
        if reservation is None:
            # Without a known start there is no limit on the cost.
            return False
        parts = sum(part.count * cluster_part(part.pod_class.footprint, totals) for part in reservation.parts)
        gained += max(0.0, reservation.start - session.now) / _HOUR * parts
    return 100 * lost_work > percent * gained


def _settings(session: Session) -> ReservationSettings | None:
    settings = session.plugin_runtime.policy.reservations
    return settings if settings is not None and settings.reserves_starts else None


def _reservation_of(session: Session, unit: QueuedUnit) -> Reservation | None:
    plan = plan_of(session)
    return plan.get(unit.key) if plan is not None else None


def _start_within(session: Session, unit: QueuedUnit, demand: WaitReason, latest: float) -> Reservation | None:
    """Return the unit's start reservation if it starts by `latest`; reserve a start if there is none yet."""
    plan = plan_of(session)
    assert plan is not None
    reservation = plan.get(unit.key)
    priority = session.unit_priority(unit)
    hopeless = reservation is not None or plan.hopeless(unit.key, demand, priority)
    if not hopeless and demand.for_room and entitled(session, plan, unit):
        parts, limit = requested_parts(session, plan, unit), run_limit(unit)
        window = plan.question(parts, limit) if parts else None
        if window is not None and window.start <= latest:
            reservation = plan.reserve(
                unit.key, unit.name, queue_of(session, unit), priority, parts, limit, session.quota_check, demand
            )
    return reservation if reservation is not None and reservation.start <= latest else None
