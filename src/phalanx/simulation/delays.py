"""Delays of a simulated cluster: from a binding until the pod runs, and from a pod's end until its node is free."""

from __future__ import annotations

import msgspec

from phalanx.simulation.workloads.distributions import Distribution, stream


class Delays(msgspec.Struct, frozen=True):
    """Distributions of the delays of a pod in seconds, None for no delay.

    `start` is the time from its binding until it runs (image pull, volumes), `end` the time from the end of its
    work, its kill or its grace period until its node is free (late kills, volumes)."""

    start: Distribution | None = None
    end: Distribution | None = None


class DelayDraws:
    """Delays of single pods. A pod gets the same delays under every policy."""

    def __init__(self, delays: Delays, seed: int) -> None:
        self._delays = delays
        self._seed = seed

    def start(self, pod: str) -> int:
        """Return the seconds from the binding of a pod until it runs."""
        return self._draw(self._delays.start, "start delay", pod)

    def end(self, pod: str) -> int:
        """Return the seconds from the end of a pod until its node is free."""
        return self._draw(self._delays.end, "end delay", pod)

    def _draw(self, distribution: Distribution | None, purpose: str, pod: str) -> int:
        if distribution is None:
            return 0
        if distribution.fixed is not None:
            return distribution.fixed
        return distribution.draw(stream(self._seed, purpose, pod))
