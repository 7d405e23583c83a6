"""Forecast starts of the gangs and pods that wait after a cycle."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.scheduling.scheduler import Scheduler, never
from phalanx.scheduling.start_reservations import forecasts
from phalanx.scheduling.start_reservations.forecasts import UnitStart
from phalanx.scheduling.start_reservations.plugin import plan_of


def forecast_starts(scheduler: Scheduler, now: float, should_stop: Callable[[], bool] = never) -> list[UnitStart]:
    """Return the forecast start of every gang and pod that waits after a cycle at `now`, in queue order."""
    session = scheduler.new_session(now)
    units = scheduler.waiting_units(session)
    return list(forecasts.forecast_starts(session, plan_of(session), units, should_stop))
