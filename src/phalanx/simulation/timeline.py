"""Samples over time, limited in number for charts, however long the simulation runs."""

from __future__ import annotations

import msgspec

# Number of samples at which every second one is dropped.
_MOST = 1024


class TimelineSample(msgspec.Struct, frozen=True):
    """The cluster at one moment (seconds since the epoch). `used` are used parts of the capacity, by resource.

    The other fields are amounts of the main resource: `held` is the allocated amount by queue, `fair` its fair
    share by weight (weighted max-min, at most its requests); `reserved_idle` is the part that is idle for a
    reserved start."""

    time: int
    waiting: int
    running: int
    used: dict[str, float]
    held: dict[str, int]
    fair: dict[str, int]
    fragmentation: float | None = None
    reserved_idle: float = 0.0


class SampledTimeline:
    """Samples at intervals that grow with the simulated time."""

    def __init__(self) -> None:
        self.samples: list[TimelineSample] = []
        self._step = 1

    def wants(self, now: int) -> bool:
        """Return whether an interval has passed since the last sample."""
        return not self.samples or now - self.samples[-1].time >= self._step

    def add(self, sample: TimelineSample) -> None:
        self.samples.append(sample)
        if len(self.samples) >= _MOST:
            self.samples = self.samples[::2]
            self._step = max(2 * self._step, (self.samples[-1].time - self.samples[0].time) // _MOST)
