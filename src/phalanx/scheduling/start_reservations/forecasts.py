"""The forecast of everybody who waits, in the order in which they have their turns."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

import msgspec

from phalanx.model.pod import ACTIVE
from phalanx.scheduling.framework.reservation_settings import ReservationSettings
from phalanx.scheduling.ordering.queue_order import QueueOrder
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.forecast import (
    NOT_AN_AMOUNT,
    NOT_PLANNED,
    ForecastQuestion,
    NoStart,
    StartForecast,
    StartForecaster,
)
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.reservations.reservation import Reservation
from phalanx.scheduling.reservations.window import Part
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.turns import parts_of, queue_of, run_limit

#: So many of those first in line get a forecast at once; so many of them however short the time is.
_SAMPLED = 32
_LEAST_SAMPLED = 8


class UnitStart(msgspec.Struct, frozen=True, eq=False):
    """When a unit starts: what is kept for it, and the forecast (of that, or without it)."""

    unit: QueuedUnit
    queue: str
    priority: int
    pods: int
    forecast: StartForecast
    reservation: Reservation | None = None


def forecast_starts(
    session: Session,
    plan: ReservationPlan | None,
    units: list[QueuedUnit],
    out_of_time: Callable[[], bool],
    *,
    refused: bool = True,
) -> Iterator[UnitStart]:
    """Of units that wait and have their ranks, in the order of their turns. With `refused` all have had a turn at
    this moment, so that nobody starts now. Those that are left when the time is up are not planned."""
    settings = plan.settings if plan is not None else ReservationSettings()
    kept = plan.all() if plan is not None else []
    forecaster = StartForecaster(
        session.state, session.quota_check, settings.start_delay, session.now, [each.window for each in kept]
    )
    # Where a queue keeps its order nobody starts before those in front.
    last_start: dict[str, int] = {}
    over = False
    for unit in _in_order(session, units):
        parts = _startable_parts(session, unit)
        queue, pods = queue_of(session, unit), sum(part.count for part in parts)
        reservation = plan.get(unit.key) if plan is not None else None
        over = over or out_of_time()
        if reservation is not None:
            forecast = forecaster.told(reservation.parts, reservation.window)
        elif not parts:
            forecast = _held(session, unit)
        elif over:
            forecast = NOT_PLANNED
        else:
            demand = session.queue.demand_of(unit.key)
            behind = demand is not None and demand.behind_another
            forecast = forecaster.next(_asked(unit, parts, last_start.get(queue, 0) if behind else 0))
            if refused and forecast.no_start is None and forecast.start <= session.now:
                forecast = NOT_AN_AMOUNT
        last_start[queue] = max(last_start.get(queue, 0), forecast.start)
        yield UnitStart(unit, queue, _priority(session, unit), pods, forecast, reservation)


def sample_forecasts(session: Session, plan: ReservationPlan, due: bool) -> bool:
    """Takes note of forecasts that have come true, and where it is `due` gives those first in line that have no
    promise a forecast, so that it is known what forecasts are worth. Whether anybody got one."""
    for key in plan.starts.forecasts.keys if due or session.plan.binds else ():
        unit = session.queue.unit(key)
        if unit is None or (unit.gangs and all(session.requirement(gang).satisfied for gang in unit.gangs)):
            if _has_nodes(session, key):
                plan.forecast_started(key)
            else:
                plan.starts.forecasts.forget([key])
    if not due:
        return False
    first = heapq.nsmallest(_SAMPLED, session.queue.first_unschedulable(_SAMPLED), key=lambda entry: entry[0])
    units = [unit for rank, unit in first if rank]
    for rank, unit in first:
        unit.rank, unit.band = rank, rank[: 1 + session.plugin_runtime.band_width]
    if all(plan.get(unit.key) is not None or unit.key in plan.starts.forecasts for unit in units):
        return False
    looked = 0

    def stop() -> bool:
        nonlocal looked
        looked += 1
        return looked > _LEAST_SAMPLED and session.out_of_time()

    for each in forecast_starts(session, plan, units, stop):
        if each.reservation is None and each.forecast.no_start is None:
            news = plan.note_forecast(each.unit.key, each.forecast.start, each.queue, each.pods)
            fit_error = session.queue.fit_error_of(each.unit.key)
            if news and fit_error is not None:
                session.decisions.explain(each.unit, fit_error.facts)
    return True


def _has_nodes(session: Session, key: UnitKey) -> bool:
    if isinstance(key, str):
        record = session.state.pods.get(key)
        return record is not None and record.state in ACTIVE
    gangs = [session.state.gangs.get(gang) for gang in key]
    return any(gang is not None and gang.active for gang in gangs)


def _in_order(session: Session, units: list[QueuedUnit]) -> list[QueuedUnit]:
    """As they would have their turns. What queues get decides whose turn it is: here they take turns one by one."""
    order, ordered = QueueOrder(session, units), list[QueuedUnit]()
    while (turn := order.next()) is not None:
        if isinstance(turn, list):
            ordered += turn
    if not session.plugin_runtime.plugins("queue_order"):
        return ordered
    rounds: dict[str, int] = {}
    places: list[tuple[int, int]] = []
    for unit in ordered:
        queue = queue_of(session, unit)
        rounds[queue] = rounds.get(queue, 0) + 1
        places.append((rounds[queue], len(places)))
    return [ordered[place] for _, place in sorted(places)]


def _priority(session: Session, unit: QueuedUnit) -> int:
    return min(session.turn_priority(member) for member in unit.members)


def _startable_parts(session: Session, unit: QueuedUnit) -> tuple[Part, ...]:
    """What it needs to start; nothing where room is not what it waits for."""
    demand = session.queue.demand_of(unit.key)
    may_start = demand is not None and (demand.for_room or demand.behind_another)
    if not unit.starts_planned or not (may_start or session.queue.awaits_turn(unit.key)):
        return ()
    if unit.pod is not None:
        return () if unit.pod.pod_class.spec.best_effort else parts_of(session, unit)
    needs = [session.requirement(gang) for gang in unit.required]
    if not needs or unit.missing or any(need.satisfied for need in needs):
        return ()
    parts = parts_of(session, unit)
    return parts if sum(part.count for part in parts) >= sum(need.total for need in needs) else ()


def _held(session: Session, unit: QueuedUnit) -> StartForecast:
    if session.queue.awaits_turn(unit.key):
        return NOT_PLANNED
    told = unit.pod.last_verdict if unit.pod is not None else None
    if unit.gangs and unit.gangs[0].last_verdict is not None:
        told = unit.gangs[0].last_verdict[0]
    why = f" ({told.code})" if told is not None else ""
    return StartForecast(no_start=NoStart.HELD, message=f"it waits for something else first{why}")


def _asked(unit: QueuedUnit, parts: tuple[Part, ...], not_before: int) -> ForecastQuestion:
    pending = (
        [unit.pod] if unit.pod is not None else [each for gang in unit.gangs for each in gang.pending.values()]
    )
    deadlines = [each.pod.run_time.deadline for each in pending if each.pod.run_time.deadline]
    return ForecastQuestion(
        parts,
        run_limit(unit),
        max((each.pod.run_time.estimate for each in pending), default=0),
        min(deadlines, default=0),
        not_before,
    )
