"""Histograms for values of every pod, because those of the client library are ten times slower."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from phalanx.daemon.metrics.families import FAMILIES


class BucketCounts:
    """Values of one histogram series, by the upper bounds of their buckets. Not thread-safe."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class Distributions(Collector):
    """Declared histogram metric: one distribution for each combination of label values."""

    def __init__(self, name: str, registry: CollectorRegistry) -> None:
        self._family = FAMILIES[name]
        self._children: dict[tuple[str, ...], BucketCounts] = {}
        if not self._family.labels:
            self.of()
        registry.register(self)

    def of(self, *values: str) -> BucketCounts:
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = BucketCounts(self._family.buckets)
        return child

    def counts(self) -> dict[tuple[str, ...], int]:
        """Return the number of observed values for each combination of label values."""
        return {values: sum(child.counts) for values, child in self._children.items()}

    def collect(self) -> Iterator[Metric]:
        family = self._family
        metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        bounds = [*map(floatToGoString, family.buckets), "+Inf"]
        for values, child in self._children.items():
            metric.add_metric(values, list(zip(bounds, accumulate(child.counts), strict=True)), child.total)
        yield metric
