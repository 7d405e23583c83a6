"""Published starts: their outcomes, their calibration, and the changes worth publishing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from phalanx.model.promise_records import ObservedStart, Slip, SlipCause
from phalanx.model.promise_texts import postponement
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.calibration import StartCalibration
from phalanx.scheduling.reservations.failed_searches import FailedSearch
from phalanx.scheduling.reservations.outcomes import PromiseOutcomes
from phalanx.scheduling.reservations.reservation import Reservation
from phalanx.scheduling.reservations.sampled_forecasts import SampledForecasts
from phalanx.scheduling.reservations.telling import expected_start, forecast_sentence

#: A start that moves by less than this many seconds, or than a tenth of the wait, is not published again.
_WORTH_TELLING = 60
#: Seconds without a reservation after a failed turn at the promised time: at first, and after many failures.
_FIRST_REST, _LONGEST_REST = 30, 3600


class PromisedStarts:
    """Starts of waiting units: `calibration` and `outcomes` of promises, `forecasts` of units without promise."""

    def __init__(self) -> None:
        self.calibration = StartCalibration()
        self.outcomes = PromiseOutcomes()
        self.forecasts = SampledForecasts()
        # Slips of the lost promises of units without a new one, and the units with an unpublished loss.
        self._lost: dict[UnitKey, tuple[Slip, ...]] = {}
        self._untold: list[UnitKey] = []

    def made(self, reservation: Reservation) -> None:
        """Register a new promise. It inherits the slips of a lost promise of the unit."""
        wait = reservation.promised - reservation.made
        reservation.predicted = self.calibration.quantiles(wait, reservation.pods)
        reservation.slips = self._lost.pop(reservation.key, reservation.slips)

    def started(self, reservation: Reservation, now: int, previous: int) -> None:
        """Record the start of a unit at `now`; the cycle before was at `previous`."""
        self.outcomes.started(reservation, now, previous)
        promised_wait, waited = reservation.promised - reservation.made, now - reservation.made
        self.calibration.observe(
            ObservedStart(reservation.queue, reservation.pods, promised_wait, waited, reservation.predicted)
        )

    def lose(self, reservation: Reservation) -> None:
        """Count a promise as lost. The loss is published in the unit's next turn, which requests a new start."""
        self.outcomes.lost(reservation.slips[-1].cause)
        self._lost[reservation.key] = reservation.slips
        self._untold.append(reservation.key)

    def lost(self, key: UnitKey) -> Slip | None:
        """Return the loss of the promise of a unit without a new one."""
        return self._lost[key][-1] if key in self._lost else None

    def losses(self) -> Mapping[UnitKey, tuple[Slip, ...]]:
        """Return the slips of the lost promises of units without a new one."""
        return self._lost

    def rests(self) -> dict[UnitKey, int]:
        """Return the ends of the rests of units whose turn at the promised time failed, in seconds since the
        epoch."""
        return {key: until for key in self._lost if (until := self.rest_of(key))}

    def rest_of(self, key: UnitKey) -> int:
        """Return the end of the rest of a unit, which is twice as long with each failed turn; 0 for none.

        It follows from the stored slips of the unit, so that the next process knows it.
        """
        slips = self._lost.get(key)
        if not slips or slips[-1].cause is not SlipCause.NOT_PLACEABLE:
            return 0
        failures = sum(slip.cause is SlipCause.NOT_PLACEABLE for slip in slips)
        return slips[-1].when + min(_FIRST_REST << (failures - 1), _LONGEST_REST)

    def restore_loss(self, key: UnitKey, slips: Sequence[Slip]) -> None:
        """Restore a loss that an earlier process has published."""
        if slips:
            self._lost.setdefault(key, tuple(slips))

    def pop_untold(self) -> list[UnitKey]:
        """Return and clear the units with an unpublished loss."""
        untold, self._untold = self._untold, []
        return untold

    def forget_gone(self, waits: Callable[[UnitKey], bool]) -> bool:
        """Forget the losses of units that wait no longer. Return whether there were any."""
        gone = [key for key in self._lost if not waits(key)]
        for key in gone:
            del self._lost[key]
        return bool(gone)

    def expected(self, reservation: Reservation, now: int) -> tuple[int, int]:
        """Return the times by which 50 and 80 of 100 comparable units have started; zeros if unknown."""
        made, promised, latest = reservation.made, reservation.promised, reservation.told
        return expected_start(self.calibration, reservation.queue, reservation.pods, made, promised, now, latest)

    def has_news(self, reservation: Reservation, now: int) -> bool:
        """Return whether the start, or the expected start, has changed enough to publish it again."""
        earlier = reservation.told - reservation.start
        if earlier < 0 or earlier >= max(_WORTH_TELLING, (reservation.told - now) / 10):
            return True
        words, worth = reservation.words, max(_WORTH_TELLING, (now - reservation.made) / 10)
        if words is None or not words.expected or words.expected > now:
            return False
        # The unit has not started at its expected time.
        expected = self.expected(reservation, now)[0]
        return not expected or expected >= now + worth

    def without_promise(self, key: UnitKey, failed: FailedSearch | None) -> str:
        """Return the text about the start of a unit without a promise, "" for none. `failed` is a search for its
        start that found none."""
        sentences = [postponement(self._lost[key][-1])] if key in self._lost else []
        expected, until = self.forecasts.told(key)
        if failed is not None:
            never = failed.never
            if never is None:
                sentences.append("no start is known: a pod in its way has no known end")
            else:
                sentences.append(never.message if never.closed else f"it {never.message}")
        elif expected:
            sentences.append(forecast_sentence(expected, until))
        return "; ".join(sentences)
