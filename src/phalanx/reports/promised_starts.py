"""Starts of waiting gangs and pods after a dry run: promised by the scheduler, or forecast."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.model.gang import GangKey
from phalanx.model.promise_texts import basis_of
from phalanx.model.text.counts import count_of
from phalanx.model.text.moments import shown_moment
from phalanx.scheduling.reservations.calibration import StartCalibration
from phalanx.scheduling.reservations.telling import expected_start
from phalanx.scheduling.start_reservations.forecasts import UnitStart
from phalanx.scheduling.start_reservations.rehearsal import PromiseMove
from phalanx.views.promises import PromisedStart, Promises, with_move

#: Reason of a forecast without probability.
NOT_CALIBRATED = "NotCalibrated"


class StartTimes:
    """Starts of waiting gangs and pods after a dry run at `now`. `moves` are the promised starts that the dry run
    moved."""

    def __init__(
        self, promises: Promises, found: Sequence[UnitStart], now: float, moves: Sequence[PromiseMove] = ()
    ) -> None:
        self._promises = promises
        self._moves = moves
        self._now = int(now)
        self._forecasts = StartCalibration()
        self._forecasts.load(promises.starts.forecast)
        self.units = found

    def of(self, who: str | GangKey) -> PromisedStart | None:
        """Return the start of a single pod (by uid) or a gang; None if it is not waiting."""
        for each in self.units:
            key = each.unit.key
            if key == who or (not isinstance(key, str) and who in key):
                return self.start(each)
        return None

    def start(self, unit: UnitStart) -> PromisedStart:
        promise = self._promises.of_unit(unit.unit)
        if promise is not None:
            return with_move(self._promises.start(promise), promise, self._moves)
        forecast = unit.forecast
        if forecast.no_start is not None:
            return PromisedStart(reason=forecast.no_start.value, message=forecast.message)
        found = PromisedStart(
            planned=shown_moment(forecast.start),
            planned_at=shown_moment(self._now),
            basis=basis_of(forecast.gangs, forecast.endless),
        )
        expected, until = expected_start(
            self._forecasts, unit.queue, unit.pods, self._now, forecast.start, self._now
        )
        if expected:
            found.expected, found.expected_until = shown_moment(expected), shown_moment(until)
        else:
            found.reason, found.message = NOT_CALIBRATED, _not_calibrated(self._forecasts)
        return found


def _not_calibrated(forecasts: StartCalibration) -> str:
    score = forecasts.score()
    if score.starts and not score.holds:
        part = round(100 * score.coverage[-1])
        return f"no estimate of its probability: P90 covered only {part} % of the last {score.starts} starts"
    return f"no estimate of its probability yet: {count_of(len(forecasts), 'start')} observed so far"
