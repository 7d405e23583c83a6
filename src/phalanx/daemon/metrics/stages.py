"""What a cycle spends its time on."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

#: The name of a stage, when it began and when it ended (seconds of the clock).
Stage = tuple[str, float, float]


class StageClock:
    """A cycle calls what `begin_cycle` gives with the name of each stage as it begins; that ends the one before."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._begun: list[tuple[str, float]] = []

    def begin_cycle(self) -> Callable[[str], None]:
        """What a cycle that raised has left behind is forgotten."""
        self._begun.clear()
        return self.begin

    def begin(self, stage: str) -> None:
        self._begun.append((stage, self._clock()))

    def take(self) -> list[Stage]:
        """The stages of the cycle, which is over."""
        ends = [when for _, when in self._begun[1:]]
        return [(name, when, end) for (name, when), end in zip(self._begun, [*ends, self._clock()], strict=False)]
