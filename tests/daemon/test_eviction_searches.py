"""Searches for victims as metrics: duration and result of each."""

from __future__ import annotations

import gc

from prometheus_client import CollectorRegistry

from phalanx.daemon.metrics.eviction_searches import EvictionSearches
from phalanx.daemon.metrics.gc_pauses import GcPauses
from tests.scheduling.scenario import Scenario


def test_searches_with_and_without_victims_are_counted_apart() -> None:
    registry = CollectorRegistry()
    world = Scenario('actions: "allocate, preempt"\ntiers: [{plugins: [{name: priority}, {name: gang}]}]\n').node(
        "n", cpu=2
    )
    world.scheduler.cycle_history.searches = EvictionSearches(registry)
    world.job("low", 2, cpu=1, priority=1).settle()
    world.job("high", 2, cpu=1, priority=2).settle()
    value = registry.get_sample_value
    count = "phalanx_eviction_search_duration_seconds_count"
    assert value(count, {"outcome": "evicts"}) == 1
    assert value("phalanx_preemption_searches_failed_total") == value(count, {"outcome": "nothing"})
    before = value("phalanx_preemption_searches_failed_total")
    world.job("huge", 9, cpu=1, priority=3).settle()
    after = value("phalanx_preemption_searches_failed_total")
    assert before is not None
    assert after is not None
    assert after > before


def test_garbage_collection_counts_as_a_pause_while_it_is_measured() -> None:
    registry = CollectorRegistry()
    pauses = GcPauses(registry)

    def full() -> float:
        return registry.get_sample_value("phalanx_gc_pause_seconds_count", {"generation": "2"}) or 0

    # Objects of other tests in this process need a second of collection.
    gc.freeze()
    try:
        gc.collect()
        assert full() == 0
        with pauses.measured():
            gc.collect()
            assert full() >= 1
        seen = full()
        gc.collect()
        assert full() == seen
    finally:
        gc.unfreeze()
