"""Forecasts that are remembered until their units start, so that it is known what forecasts are worth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.calibration import ObservedStart, StartCalibration
from phalanx.scheduling.reservations.telling import expected_start

#: So many units are remembered at once.
MOST_SAMPLES: Final = 256
#: Another expected start is told once it differs by so many seconds, or a tenth of the wait.
_WORTH_TELLING: Final = 60


class _Sample(msgspec.Struct):
    """The first forecast of a unit, what the quantiles said then, and what is told now (0: nothing)."""

    made: int
    start: int
    queue: str
    pods: int
    predicted: tuple[int, ...]
    expected: int = 0
    until: int = 0


class SampledForecasts:
    """Of units that wait without a promise, each counted by its first forecast: when it is asked is chance."""

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
        """A unit is expected to start at a moment, by the plan alone."""
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
        """They are gone, or nobody knows their starts any more."""
        for key in keys:
            self._samples.pop(key, None)

    def told(self, key: UnitKey) -> tuple[int, int]:
        """(when half of those like it, when 80 of 100 have started); zeros where nobody can say."""
        sample = self._samples.get(key)
        return (sample.expected, sample.until) if sample is not None else (0, 0)
