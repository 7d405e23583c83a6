"""Metric: pauses of the process for Python's garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry

from phalanx.daemon.metrics.distribution import Distributions


class GcPauses:
    """Pauses for garbage collection as a metric; `clock` returns seconds."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._began = 0.0
        pauses = Distributions("phalanx_gc_pause_seconds", registry)
        self._pauses = [pauses.of(str(generation)) for generation in range(3)]

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure every garbage collection inside the context."""
        gc.callbacks.append(self._collecting)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, info: dict[str, Any]) -> None:
        # Collections never overlap, whichever thread runs one.
        if phase == "start":
            self._began = self._clock()
        else:
            self._pauses[info["generation"]].observe(self._clock() - self._began)
