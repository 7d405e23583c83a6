"""Forecasts of all waiting units in queue order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from phalanx.cluster.node_table import NO_ROW
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
from phalanx.scheduling.start_reservations.unit_request import parts_of, queue_of, run_limit

#: Number of units that get a forecast at once, and the number that get one even when time is short.
_SAMPLED = 32
_LEAST_SAMPLED = 8


class UnitStart(msgspec.Struct, frozen=True, eq=False):
    """Start of a unit: its reservation, and its forecast with or without one."""

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
    basis: bool = True,
) -> Iterator[UnitStart]:
    """Yield the forecasts of ranked waiting units in queue order.

    With `refused` all units have just had a turn, so no unit starts now. With `basis`, forecasts include the
    run-time limits that they rest on. Units that are left when the time is up are NOT_PLANNED.
    """
    settings = plan.settings if plan is not None else ReservationSettings()
    reservations = plan.all() if plan is not None else []
    forecaster = StartForecaster(
        session.state,
        session.quota_check,
        settings.start_delay,
        session.now,
        [held_start.window for held_start in reservations],
        basis,
    )
    # Under strict queue order no unit starts before the units ahead of it.
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
            asked = _asked(unit, parts, last_start.get(queue, 0) if behind else 0)
            forecast = forecaster.next(_with_reopened_nodes(session, asked))
            if refused and forecast.no_start is None and forecast.start <= session.now:
                forecast = NOT_AN_AMOUNT
        last_start[queue] = max(last_start.get(queue, 0), forecast.start)
        yield UnitStart(unit, queue, session.unit_priority(unit), pods, forecast, reservation)


def sample_forecasts(session: Session, plan: ReservationPlan, due: bool) -> bool:
    """Record sampled forecasts that have come true.

    If `due`, sample forecasts of the first units without promise; return whether it sampled.
    """
    waiting, keys = session.state.pods.standalone, plan.starts.forecasts.keys
    for key in [key for key in keys if key not in waiting] if due or session.plan.binds else ():
        unit = session.queue.unit(key)
        if unit is None or (unit.gangs and all(session.requirement(gang).satisfied for gang in unit.gangs)):
            if _has_nodes(session, key):
                plan.forecast_started(key)
            else:
                plan.starts.forecasts.forget([key])
    if not due:
        return False
    first = sorted(session.queue.first_unschedulable(_SAMPLED), key=lambda entry: entry[0])[:_SAMPLED]
    units = [unit for rank, unit in first if rank]
    for rank, unit in first:
        unit.rank, unit.band = rank, rank[: 1 + session.plugin_runtime.band_width]
    if all(plan.get(unit.key) is not None or unit.key in plan.starts.forecasts for unit in units):
        return False
    count = 0

    def stop() -> bool:
        nonlocal count
        count += 1
        return count > _LEAST_SAMPLED and session.out_of_time()

    for unit_start in forecast_starts(session, plan, units, stop, basis=False):
        if unit_start.reservation is None and unit_start.forecast.no_start is None:
            changed = plan.note_forecast(
                unit_start.unit.key, unit_start.forecast.start, unit_start.queue, unit_start.pods
            )
            fit_error = session.queue.fit_error_of(unit_start.unit.key)
            if changed and fit_error is not None:
                session.decisions.explain(unit_start.unit, fit_error.facts)
    return True


def _has_nodes(session: Session, key: UnitKey) -> bool:
    if isinstance(key, str):
        record = session.state.pods.get(key)
        return record is not None and record.state in ACTIVE
    gangs = [session.state.gangs.get(gang) for gang in key]
    return any(gang is not None and gang.active for gang in gangs)


def _in_order(session: Session, units: list[QueuedUnit]) -> list[QueuedUnit]:
    """Return units in queue order.

    Queue orders depend on usage that a forecast does not change, so queues alternate.
    """
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


def _startable_parts(session: Session, unit: QueuedUnit) -> tuple[Part, ...]:
    """Return the parts that the unit needs to start; () if it waits for something other than room."""
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
    verdict = unit.pod.last_verdict if unit.pod is not None else None
    if unit.gangs and unit.gangs[0].last_verdict is not None:
        verdict = unit.gangs[0].last_verdict[0]
    code_text = f" ({verdict.code})" if verdict is not None else ""
    return StartForecast(no_start=NoStart.HELD, message=f"it waits for something else first{code_text}")


def _with_reopened_nodes(session: Session, asked: ForecastQuestion) -> ForecastQuestion:
    """Add the nodes that are in back-off now to the parts, with the moment from which all are open."""
    nodes = session.state.nodes
    if not nodes.backoff.active:
        return asked
    reopened, reopens = list[Part](), 0
    for part in asked.parts:
        ends = nodes.backoff.reopening(part.pod_class.spec, part.pod_class.namespace)
        rows = [row for name in ends if (row := nodes.row(name)) != NO_ROW]
        if rows:
            usable = part.rows.copy()
            usable[rows] = session.placer.lasting_rows(part.pod_class)[rows]
            reopens = max(reopens, *ends.values())
            reopened.append(msgspec.structs.replace(part, rows=usable))
        else:
            reopened.append(part)
    return msgspec.structs.replace(asked, reopened=tuple(reopened), reopens=reopens) if reopens else asked


def _asked(unit: QueuedUnit, parts: tuple[Part, ...], not_before: int) -> ForecastQuestion:
    pending = (
        [unit.pod] if unit.pod is not None else [member for gang in unit.gangs for member in gang.pending.values()]
    )
    deadlines = [member.pod.run_time.deadline for member in pending if member.pod.run_time.deadline]
    return ForecastQuestion(
        parts,
        run_limit(unit),
        max((member.pod.run_time.estimate for member in pending), default=0),
        min(deadlines, default=0),
        not_before,
    )
