"""How long pods wait for their binding, and a gang's bindings take together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic

from prometheus_client import CollectorRegistry

from phalanx.daemon.metrics.distribution import Distributions
from phalanx.daemon.metrics.exposition import labels, lines_of
from phalanx.execution.binder import BindOutcome, BindResult
from phalanx.model.decisions import Bind
from phalanx.model.gang import GangKey

#: Attempts beyond count as kube-scheduler counts them.
_MOST_ATTEMPTS = 16
#: Of so many units it is known how often they were refused; beyond, of those that were refused last.
_MANY = 20_000


class _Span:
    """The bindings of a gang that were decided together: how many are open, and when the first answer came."""

    __slots__ = ("first", "open")

    def __init__(self) -> None:
        self.open = 0
        self.first = 0.0


# Of a binding that nothing is known of.
_UNKNOWN: tuple[float, int, _Span | None] = (0.0, 0, None)


class BindTimes:
    """`clock` gives seconds. A pod's wait begins anew with the process, as kube-scheduler's does.

    An attempt is what `scheduler_schedule_attempts_total` counts: a binding, or the news that there is none.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._entered: dict[str, float] = {}
        self._refusals: dict[str | GangKey, int] = {}
        # When a binding was decided, in which attempt, and with whom.
        self._decided: dict[str, tuple[float, int, _Span | None]] = {}
        self._waits = Distributions("scheduler_pod_scheduling_sli_duration_seconds", registry)
        self._first_waits = self._waits.of(_told(1))
        self._bound = 0
        self._not_bound = {outcome.value: 0 for outcome in BindOutcome if outcome is not BindOutcome.BOUND}
        self._attempts = Distributions("scheduler_pod_scheduling_attempts", registry).of()
        self._bindings = Distributions("phalanx_binding_duration_seconds", registry).of()
        self._spans = Distributions("phalanx_gang_bind_span_seconds", registry).of()

    def pod_waits(self, uid: str) -> None:
        """A pod without a node could have one. May be told of the same again."""
        if uid not in self._entered:
            self._entered[uid] = self._clock()

    def refused(self, unit: str | GangKey) -> None:
        """A gang, or a pod by its uid, was told that there is no place for it."""
        self._refusals[unit] = self._refusals.get(unit, 0) + 1
        if len(self._refusals) > _MANY:
            for eldest in list(self._refusals)[: _MANY // 2]:
                del self._refusals[eldest]

    def decided(self, binds: Iterable[Bind]) -> None:
        now, refusals = self._clock(), self._refusals
        gang: GangKey | None = None
        span, attempt = None, 1
        for bind in binds:
            if bind.gang is None:
                self._decided[bind.uid] = (now, 1 + refusals.get(bind.uid, 0), None)
                continue
            # Those of a gang stand together.
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
            waits = self._first_waits if attempt == 1 else self._waits.of(_told(attempt))
            waits.observe(now - self._entered.pop(uid, decided))

    def lines(self) -> Iterable[str]:
        outcomes = {BindOutcome.BOUND.value: self._bound} | self._not_bound
        return lines_of("phalanx_bindings_total", ((labels(outcome=told), n) for told, n in outcomes.items()))

    def pod_gone(self, uid: str) -> None:
        self._entered.pop(uid, None)
        self._refusals.pop(uid, None)
        self._decided.pop(uid, None)


def _told(attempt: int) -> str:
    """As a label."""
    return str(attempt) if attempt < _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS - 1}+"
