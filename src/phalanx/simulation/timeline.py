"""Samples over time, as many as a chart can show, however long the simulation runs."""

from __future__ import annotations

import msgspec

# Twice as many as are kept when every second one is let go.
_MOST = 1024


class TimelineSample(msgspec.Struct, frozen=True):
    """The cluster at one moment (seconds since the epoch). `used` are parts of what is offered, by resource. Of the
    resource that counts most, in its units, `held` is what each queue has, `fair` what it would have if its weight
    alone decided (weighted max-min, nobody more than it asks for);
    `reserved_idle` is the part of it that stands idle because a start is kept."""

    time: int
    waiting: int
    running: int
    used: dict[str, float]
    held: dict[str, int]
    fair: dict[str, int]
    fragmentation: float | None = None
    reserved_idle: float = 0.0


class SampledTimeline:
    """Keeps a sample for each stretch of time; stretches grow as time goes on."""

    def __init__(self) -> None:
        self.samples: list[TimelineSample] = []
        self._step = 1

    def wants(self, now: int) -> bool:
        """Whether a stretch has gone by since the last sample."""
        return not self.samples or now - self.samples[-1].time >= self._step

    def add(self, sample: TimelineSample) -> None:
        self.samples.append(sample)
        if len(self.samples) >= _MOST:
            self.samples = self.samples[::2]
            self._step = max(2 * self._step, (self.samples[-1].time - self.samples[0].time) // _MOST)
