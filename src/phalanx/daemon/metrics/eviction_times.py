"""Metrics of evictions: termination times of evicted pods, and gangs that are evicted repeatedly."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from time import monotonic

from prometheus_client import CollectorRegistry

from phalanx.daemon.metrics import families
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.model.gang import GangKey

#: Number of evictions of a gang, and the seconds within which they count: one more is a repeated eviction.
_OFTEN, _WITHIN = 3, 3600.0
_MOST_GANGS = 10_000


class EvictionTimes:
    """Termination times of evicted pods for metrics; `clock` returns seconds."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._terminating: dict[str, float] = {}
        # Last eviction decisions of each gang, ordered by the last eviction.
        self._gangs: OrderedDict[GangKey, deque[tuple[float, str]]] = OrderedDict()
        self._durations = families.histogram("phalanx_eviction_duration_seconds", registry)
        self._repeated = families.counter("phalanx_repeated_gang_evictions_total", registry)

    def answered(self, result: EvictResult) -> None:
        evict, now = result.evict, self._clock()
        if result.outcome is not EvictionOutcome.EVICTED:
            return
        self._terminating[evict.uid] = now
        if evict.gang is None:
            return
        decisions = self._gangs.setdefault(evict.gang, deque(maxlen=_OFTEN + 1))
        if any(cause == evict.cause for _, cause in decisions):
            return
        decisions.append((now, evict.cause))
        if len(decisions) > _OFTEN and now - decisions[0][0] <= _WITHIN:
            self._repeated.inc()
        self._gangs.move_to_end(evict.gang)
        while len(self._gangs) > _MOST_GANGS:
            self._gangs.popitem(last=False)

    def pod_gone(self, uid: str) -> None:
        since = self._terminating.pop(uid, None)
        if since is not None:
            self._durations.observe(self._clock() - since)
