"""What was told about starts, what came true of it, and what is worth telling next."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.calibration import ObservedStart, StartCalibration
from phalanx.scheduling.reservations.impossible import Never
from phalanx.scheduling.reservations.outcomes import PromiseOutcomes
from phalanx.scheduling.reservations.reservation import Reservation
from phalanx.scheduling.reservations.sampled_forecasts import SampledForecasts
from phalanx.scheduling.reservations.telling import expected_start, forecast_sentence, postponement

#: A start that is earlier, or expected later, by less than so many seconds, or a tenth of the wait, is no news.
_WORTH_TELLING = 60


class PromisedStarts:
    """`calibration` and `outcomes` are those of promises, `forecasts` of those who have none."""

    def __init__(self) -> None:
        self.calibration = StartCalibration()
        self.outcomes = PromiseOutcomes()
        self.forecasts = SampledForecasts()
        # What those were promised whose start was lost and who have no other; and of them those not told yet.
        self._lost: dict[UnitKey, Reservation] = {}
        self._untold: list[UnitKey] = []

    def made(self, reservation: Reservation) -> None:
        """Somebody has a start: of who has lost one before, the slips stay."""
        wait = reservation.promised - reservation.made
        reservation.predicted = self.calibration.quantiles(wait, reservation.pods)
        if (lost := self._lost.pop(reservation.key, None)) is not None:
            reservation.slips = lost.slips

    def started(self, reservation: Reservation, now: int) -> None:
        self.outcomes.started(reservation, now)
        told, waited = reservation.promised - reservation.made, now - reservation.made
        self.calibration.observe(
            ObservedStart(reservation.queue, reservation.pods, told, waited, reservation.predicted)
        )

    def lose(self, reservation: Reservation) -> None:
        """Its start is given up; it is told so, and asks for another in its turn."""
        self.outcomes.lost(reservation.slips[-1].cause)
        self._lost[reservation.key] = reservation
        self._untold.append(reservation.key)

    def lost(self, key: UnitKey) -> Reservation | None:
        """What a unit was promised whose start was lost and who has no other."""
        return self._lost.get(key)

    def pop_untold(self) -> list[UnitKey]:
        """Those that have lost their starts since."""
        untold, self._untold = self._untold, []
        return untold

    def forget_gone(self, waits: Callable[[UnitKey], bool]) -> None:
        for key in [key for key in self._lost if not waits(key)]:
            del self._lost[key]

    def expected(self, reservation: Reservation, now: float) -> tuple[int, int]:
        """When half, and 80 of 100, of those like it have started; zeros where nobody can say."""
        made, promised, latest = reservation.made, reservation.promised, reservation.told
        return expected_start(
            self.calibration, reservation.queue, reservation.pods, made, promised, int(now), latest
        )

    def has_news(self, reservation: Reservation, now: float) -> bool:
        """Whether people are to be told another start, or to expect it later than they were told."""
        earlier = reservation.told - reservation.start
        if earlier < 0 or earlier >= max(_WORTH_TELLING, (reservation.told - now) / 10):
            return True
        words, worth = reservation.words, max(_WORTH_TELLING, (now - reservation.made) / 10)
        if words is None or not words.expected or words.expected > now:
            return False
        # It did not start when it was expected to.
        expected = self.expected(reservation, now)[0]
        return not expected or expected >= now + worth

    def without_promise(self, key: UnitKey, hopeless: tuple[int, Never | None] | None) -> str:
        """What somebody without a promise is told, "" for nothing. `hopeless`: since when no start was found, and
        why there cannot be one."""
        told = [postponement(self._lost[key].slips[-1])] if key in self._lost else []
        expected, until = self.forecasts.told(key)
        if hopeless is not None:
            never = hopeless[1]
            if never is None:
                told.append("no start is known: what is in its way has no known end")
            else:
                told.append(never.message if never.closed else f"it {never.message}")
        elif expected:
            told.append(forecast_sentence(expected, until))
        return "; ".join(told)
