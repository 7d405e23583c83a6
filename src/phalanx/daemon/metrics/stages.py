"""Metric: duration of the stages of a scheduling cycle."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

#: Name of a stage, its start and its end (seconds of the clock).
Stage = tuple[str, float, float]


class StageClock:
    """Clock of the stages of a scheduling cycle; a cycle calls `begin` at the start of each stage, which ends the
    previous one."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._begun: list[tuple[str, float]] = []

    def begin_cycle(self) -> Callable[[str], None]:
        """Drop the stages of a failed cycle; return the function that begins a stage."""
        self._begun.clear()
        return self.begin

    def begin(self, stage: str) -> None:
        self._begun.append((stage, self._clock()))

    def take(self) -> list[Stage]:
        """Return the stages of the finished cycle."""
        ends = [when for _, when in self._begun[1:]]
        return [(name, when, end) for (name, when), end in zip(self._begun, [*ends, self._clock()], strict=False)]
