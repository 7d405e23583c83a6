"""Metrics of the action defragment."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from phalanx.daemon.metrics.families import computed
from phalanx.scheduling.defragmentation.plugin import Defragmentation
from phalanx.scheduling.scheduler import Scheduler


class DefragmentationMetrics(Collector):
    """Metrics of the action defragment, computed per scrape.

    There are none if the policy does not name the action, and on a standby (`scheduler` returns None).
    """

    def __init__(self, scheduler: Callable[[], Scheduler | None], clock: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        runs_total = computed("phalanx_defragmentation_runs_total")
        evictions = computed("phalanx_defragmentation_evictions_total")
        budget = computed("phalanx_defragmentation_evictions_left")
        scheduler = self._scheduler()
        settings = scheduler.policy.defragmentation if scheduler is not None else None
        feature = scheduler.features.get(Defragmentation) if scheduler is not None else None
        if feature is not None and settings is not None:
            runs = feature.runs
            for outcome, count in sorted(runs.outcomes.items()):
                runs_total.add_metric([outcome], count)
            evictions.add_metric([], runs.moved)
            budget.add_metric([], runs.left(settings, self._clock()))
        yield from (runs_total, evictions, budget)
