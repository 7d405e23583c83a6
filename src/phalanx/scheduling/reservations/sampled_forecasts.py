"""Forecasts that are stored until their units start, so that their accuracy is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from phalanx.model.promise_records import ObservedStart
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.calibration import StartCalibration
from phalanx.scheduling.reservations.telling import expected_start

#: Largest number of stored units.
MOST_SAMPLES: Final = 256
#: An expected start is published again once it differs by this many seconds, or by a tenth of the wait.
_WORTH_TELLING: Final = 60


class _Sample(msgspec.Struct):
    """First forecast of a unit, the quantiles at that time, and the published expectation (0: none)."""

    made: int
    start: int
    queue: str
    pods: int
    predicted: tuple[int, ...]
    expected: int = 0
    until: int = 0


class SampledForecasts:
    """Sample of waiting units without a promise, each with its first forecast: a later one depends on when it is
    queried."""

    def __init__(self) -> None:
        self.calibration = StartCalibration()
        self._samples: dict[UnitKey, _Sample] = {}

    def __len__(self) -> int:
        return len(self._samples)

    def __contains__(self, key: UnitKey) -> bool:
        return key in self._samples

    @property
    def keys(self) -> list[UnitKey]:
        return list(self._samples)

    def note(self, key: UnitKey, now: int, start: int, queue: str, pods: int) -> None:
        """Store the forecast start of a unit, and update its expected start."""
        sample = self._samples.get(key)
        if sample is None:
            if len(self._samples) >= MOST_SAMPLES or start <= now:
                return
            predicted = self.calibration.quantiles(start - now, pods)
            sample = self._samples[key] = _Sample(now, start, queue, pods, predicted)
        expected, until = expected_start(self.calibration, queue, pods, now, start, now)
        if not expected or abs(expected - sample.expected) >= max(_WORTH_TELLING, (start - now) // 10):
            sample.expected, sample.until = expected, until

    def started(self, key: UnitKey, now: int) -> None:
        sample = self._samples.pop(key)
        self.calibration.observe(
            ObservedStart(
                sample.queue, sample.pods, sample.start - sample.made, now - sample.made, sample.predicted
            )
        )

    def forget(self, keys: Iterable[UnitKey]) -> None:
        """Drop units that are gone or have no forecast any more."""
        for key in keys:
            self._samples.pop(key, None)

    def told(self, key: UnitKey) -> tuple[int, int]:
        """Return the times by which 50 and 80 of 100 comparable units have started; zeros if unknown."""
        sample = self._samples.get(key)
        return (sample.expected, sample.until) if sample is not None else (0, 0)
