"""Metrics: age of the scheduler's state by resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from phalanx.daemon.metrics.exposition import labels, lines_of
from phalanx.kube.reflector import Reflector


class WatchSeries:
    """Lag and restarts of watches by resource, as metrics; `reflectors` returns the active ones. Versions count
    together."""

    def __init__(self, reflectors: Callable[[], Iterable[Reflector[Any]]]) -> None:
        self._reflectors = reflectors

    def lines(self) -> Iterator[str]:
        lags: dict[str, float] = {}
        restarts: dict[tuple[str, str], int] = {}
        for reflector in self._reflectors():
            resource = reflector.resource
            name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            lags[name] = max(lags.get(name, 0.0), reflector.lag)
            for reason, count in reflector.restarts.items():
                restarts[name, reason] = restarts.get((name, reason), 0) + count
        yield from lines_of(
            "phalanx_watch_lag_seconds", ((labels(resource=name), round(lag, 3)) for name, lag in lags.items())
        )
        yield from lines_of(
            "phalanx_watch_restarts_total",
            ((labels(resource=name, reason=reason), count) for (name, reason), count in restarts.items()),
        )
