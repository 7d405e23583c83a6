"""Metrics of binding durations: the wait of each pod, and the span of the bindings of a gang."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic

from prometheus_client import CollectorRegistry

from phalanx.daemon.metrics.distribution import Distributions
from phalanx.daemon.metrics.exposition import labels, lines_of
from phalanx.execution.binder import BindOutcome, BindResult
from phalanx.model.decisions import Bind
from phalanx.model.gang import GangKey

#: Number of attempts from which they are counted together, as in kube-scheduler.
_MOST_ATTEMPTS = 16
#: Maximum number of units with a count of unschedulable attempts; the oldest half is dropped beyond it.
_MOST_UNITS = 20_000


class _Span:
    """Bindings of a gang that were decided together: number without an answer, and time of the first answer."""

    __slots__ = ("first", "open")

    def __init__(self) -> None:
        self.open = 0
        self.first = 0.0


# Values for a binding of an unknown pod.
_UNKNOWN: tuple[float, int, _Span | None] = (0.0, 0, None)


class BindTimes:
    """Durations of bindings for metrics; `clock` returns seconds.

    The wait of a pod begins again with each process, as in kube-scheduler. An attempt is one count of
    `scheduler_schedule_attempts_total`: a binding, or a verdict that the pod is unschedulable.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._entered: dict[str, float] = {}
        self._refusals: dict[str | GangKey, int] = {}
        # Time of the decision, number of the attempt, and the gang's span, by uid of the pod.
        self._decided: dict[str, tuple[float, int, _Span | None]] = {}
        self._waits = Distributions("scheduler_pod_scheduling_sli_duration_seconds", registry)
        self._first_waits = self._waits.of(_label_of(1))
        self._bound = 0
        self._not_bound = {outcome.value: 0 for outcome in BindOutcome if outcome is not BindOutcome.BOUND}
        self._attempts = Distributions("scheduler_pod_scheduling_attempts", registry).of()
        self._bindings = Distributions("phalanx_binding_duration_seconds", registry).of()
        self._spans = Distributions("phalanx_gang_bind_span_seconds", registry).of()

    def pod_waits(self, uid: str) -> None:
        """Start to measure the wait of a schedulable pod without a node; later calls have no effect."""
        if uid not in self._entered:
            self._entered[uid] = self._clock()

    def refused(self, unit: str | GangKey) -> None:
        """Count an unschedulable attempt of a gang, or of a pod by its uid."""
        self._refusals[unit] = self._refusals.get(unit, 0) + 1
        if len(self._refusals) > _MOST_UNITS:
            for oldest in list(self._refusals)[: _MOST_UNITS // 2]:
                del self._refusals[oldest]

    def decided(self, binds: Iterable[Bind]) -> None:
        now, refusals = self._clock(), self._refusals
        gang: GangKey | None = None
        span, attempt = None, 1
        for bind in binds:
            if bind.gang is None:
                self._decided[bind.uid] = (now, 1 + refusals.get(bind.uid, 0), None)
                continue
            # Bindings of one gang are adjacent.
            if span is None or bind.gang != gang:
                gang, span, attempt = bind.gang, _Span(), 1 + refusals.get(bind.gang, 0)
            span.open += 1
            self._decided[bind.uid] = (now, attempt, span)

    def answered(self, result: BindResult) -> None:
        uid, now = result.bind.uid, self._clock()
        decided, attempt, span = self._decided.pop(uid, _UNKNOWN)
        if span is not None:
            span.open -= 1
            span.first = span.first or now
            if not span.open:
                self._spans.observe(now - span.first)
        if result.outcome is not BindOutcome.BOUND:
            self._not_bound[result.outcome.value] += 1
            return
        self._bound += 1
        if attempt:
            self._bindings.observe(now - decided)
            self._attempts.observe(attempt)
            waits = self._first_waits if attempt == 1 else self._waits.of(_label_of(attempt))
            waits.observe(now - self._entered.pop(uid, decided))

    def lines(self) -> Iterable[str]:
        outcomes = {BindOutcome.BOUND.value: self._bound} | self._not_bound
        return lines_of("phalanx_bindings_total", ((labels(outcome=outcome), n) for outcome, n in outcomes.items()))

    def pod_gone(self, uid: str) -> None:
        self._entered.pop(uid, None)
        self._refusals.pop(uid, None)
        self._decided.pop(uid, None)


def _label_of(attempt: int) -> str:
    """Return the metric label for a number of scheduling attempts."""
    return str(attempt) if attempt < _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS - 1}+"
