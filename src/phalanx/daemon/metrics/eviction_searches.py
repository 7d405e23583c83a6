"""Metrics of searches for victims: durations, and the number of failed ones."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from prometheus_client import CollectorRegistry

from phalanx.daemon.metrics import families
from phalanx.daemon.metrics.distribution import Distributions
from phalanx.scheduling.session.eviction_searches import SearchOutcome


class EvictionSearches:
    """Observer of searches for victims that updates metrics; `clock` returns seconds.

    A demand that is known to be unsolvable is not searched for.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._began = 0.0
        durations = Distributions("phalanx_eviction_search_duration_seconds", registry)
        self._durations = {outcome: durations.of(outcome.value) for outcome in SearchOutcome}
        self._failed = families.counter("phalanx_preemption_searches_failed_total", registry)

    def begin(self) -> None:
        self._began = self._clock()

    def end(self, outcome: SearchOutcome) -> None:
        self._durations[outcome].observe(self._clock() - self._began)
        if outcome is SearchOutcome.NOTHING:
            self._failed.inc()

    def discard(self) -> None:
        self._failed.inc()
