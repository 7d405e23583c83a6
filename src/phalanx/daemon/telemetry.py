"""Telemetry of the scheduler process: metrics, log lines and spans."""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import Callable
from functools import partial
from importlib.metadata import version as installed
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import generate_latest

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.daemon.decision_log import DecisionLog
from phalanx.daemon.endpoint import EndpointOptions, Observed, serving
from phalanx.daemon.metrics import families
from phalanx.daemon.metrics.bind_times import BindTimes
from phalanx.daemon.metrics.cluster_counts import OTHER
from phalanx.daemon.metrics.distribution import Distributions
from phalanx.daemon.metrics.eviction_searches import EvictionSearches
from phalanx.daemon.metrics.eviction_times import EvictionTimes
from phalanx.daemon.metrics.gc_pauses import GcPauses
from phalanx.daemon.metrics.stages import StageClock
from phalanx.dialects.core import PodObject
from phalanx.execution.binder import BindResult
from phalanx.execution.conditions import NominationOutcome
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.model.decisions import EvictionReason, Plan
from phalanx.model.gang import GangKey
from phalanx.status.verdict_publisher import INCOMPLETE

if TYPE_CHECKING:
    from phalanx.daemon.tracing import Tracing

# Results of an attempt, in kube-scheduler's words.
_SCHEDULED, _UNSCHEDULABLE = "scheduled", "unschedulable"
# Maximum number of queues and priority classes with wait series of their own; further ones count as OTHER.
_MOST_QUEUES, _MOST_CLASSES = 500, 20
# Parts that fail without ending the process; at 0 from the start, so that the first failure is an increase.
_PARTS = (
    *("cycle", "discovery", "executor", "intake", "planning", "plugin", "reflector", "state", "status", "task"),
    "write",
)
# Seconds between two measurements of the event loop's lag.
_LAG_PERIOD = 1.0


class Telemetry:
    """Counters of events in the scheduler process, with their log lines, spans (`tracing`) and metrics
    (`endpoint`)."""

    def __init__(self, endpoint: EndpointOptions | None = None, tracing: Tracing | None = None) -> None:
        self.endpoint = endpoint or EndpointOptions()
        self._tracing = tracing
        self._queues_seen: set[str] = set()
        self._classes_seen: set[str] = set()
        self.priority_class_of: Callable[[int], str] = lambda priority: ""
        # The creation times would double the number of series, and no user reads them.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self.stages = StageClock()
        self.decisions = DecisionLog()
        self.bind_times = BindTimes(registry)
        self.eviction_times = EvictionTimes(registry)
        self.eviction_searches = EvictionSearches(registry)
        self._gc_pauses = GcPauses(registry)
        self._attempts = families.counter("scheduler_schedule_attempts_total", registry)
        self._gang_attempts = families.counter("scheduler_podgroup_schedule_attempts_total", registry)
        self._gang_waits = Distributions("phalanx_gang_wait_time_seconds", registry)
        self._interrupted = families.counter("phalanx_cycle_interrupted_total", registry).labels("budget")
        self._last_cycle = families.gauge("phalanx_last_cycle_timestamp_seconds", registry)
        self._lag = families.histogram("phalanx_event_loop_lag_seconds", registry)
        families.gauge("phalanx_build_info", registry).labels(installed("phalanx-scheduler")).set(1)
        self._cycles = families.histogram("phalanx_cycle_duration_seconds", registry)
        self._stages = families.histogram("phalanx_stage_duration_seconds", registry)
        evictions = families.counter("phalanx_evictions_total", registry)
        self._evictions = {
            (reason, outcome): evictions.labels(reason.value, outcome.value)
            for reason in EvictionReason
            for outcome in EvictionOutcome
        }
        nominations = families.counter("phalanx_nominations_total", registry)
        self._nominations = {outcome: nominations.labels(outcome.value) for outcome in NominationOutcome}
        disruptions = families.counter("phalanx_eviction_decisions_total", registry)
        self._disruptions = {reason: disruptions.labels(reason.value) for reason in EvictionReason}
        self._preemptions = families.counter("scheduler_preemption_attempts_total", registry)
        self._preempted = families.histogram("scheduler_preemption_victims", registry)
        self._victims = families.histogram("phalanx_eviction_victims", registry)
        self._refusals = families.counter("phalanx_kubelet_rejections_total", registry)
        self._distrusted = families.counter("phalanx_distrusted_annotations_total", registry)
        self._exceeded = families.counter("phalanx_run_times_exceeded_total", registry)
        self._failures = families.counter("phalanx_failures_total", registry)
        for part in _PARTS:
            self._failures.labels(part)
        self._self_checks = families.counter("phalanx_self_check_failures_total", registry)
        self._statuses_refused = families.counter("phalanx_status_writes_refused_total", registry)

    def cycle(self, plan: Plan, seconds: float, state: ClusterState, now: float) -> None:
        """Count a scheduling cycle that took `seconds` and ended at `now` (since the epoch); `state` includes its
        plan."""
        wake, stages = self.decisions.cycle(plan, state, now), self.stages.take()
        if self._tracing is not None:
            self._tracing.cycle(plan, wake, stages)
        self._cycles.observe(seconds)
        for stage, begun, ended in stages:
            self._stages.labels(stage).observe(ended - begun)
        self._last_cycle.set(now)
        if not plan.complete:
            self._interrupted.inc()
        self._count_attempts(plan, state, now)
        for (_, reason), victims in Tally((evict.cause, evict.reason) for evict in plan.evictions).items():
            self._disruptions[reason].inc()
            self._victims.observe(victims)
            if reason is EvictionReason.PREEMPTED:
                self._preemptions.inc()
                self._preempted.observe(victims)

    def _count_attempts(self, plan: Plan, state: ClusterState, now: float) -> None:
        pods: Tally[tuple[str, str]] = Tally()
        gangs: Tally[tuple[str, str]] = Tally()
        started: dict[GangKey, PodRecord] = {}
        self.bind_times.decided(plan.binds)
        for bind in plan.binds:
            record = state.pods.get(bind.uid)
            if record is not None:
                pods[_SCHEDULED, record.pod.scheduler] += 1
                if record.gang is not None:
                    started.setdefault(record.gang.key, record)
        for gang, record in started.items():
            gangs[_SCHEDULED, record.pod.scheduler] += 1
            self._count_wait(gang, record, state, now)
        for decided in plan.pods:
            record = state.pods.get(decided.uid)
            if decided.verdict is not None and record is not None:
                self.bind_times.refused(decided.uid)
                pods[_UNSCHEDULABLE, record.pod.scheduler] += 1
        for news in plan.gangs:
            members = state.gangs[news.gang].pending.values() if news.gang in state.gangs else ()
            if news.verdict is not None and members and news.verdict.code not in INCOMPLETE:
                self.bind_times.refused(news.gang)
                profile = next(iter(members)).pod.scheduler
                pods[_UNSCHEDULABLE, profile] += len(members)
                gangs[_UNSCHEDULABLE, profile] += 1
        for counter, counts in ((self._attempts, pods), (self._gang_attempts, gangs)):
            for written, count in counts.items():
                counter.labels(*written).inc(count)

    def _count_wait(self, gang: GangKey, record: PodRecord, state: ClusterState, now: float) -> None:
        """Observe the wait of a gang for the metrics if no member was placed before this decision."""
        known, charge_path = state.gangs[gang], record.charge_path
        counts = known.counts()
        if known.spec is None or not known.spec.created or counts.bound or counts.running:
            return
        queue = charge_path.queue.key.name if charge_path is not None and charge_path.queue is not None else ""
        stated = known.spec.priority
        name = self.priority_class_of(record.pod.priority if stated is None else stated)
        written = (_seen(self._queues_seen, queue, _MOST_QUEUES), _seen(self._classes_seen, name, _MOST_CLASSES))
        self._gang_waits.of(*written).observe(max(0.0, now - known.spec.created))

    def bound(self, result: BindResult) -> None:
        self.bind_times.answered(result)
        self.decisions.bound(result)
        if self._tracing is not None:
            self._tracing.bound(result)

    def evicted(self, result: EvictResult) -> None:
        self._evictions[result.evict.reason, result.outcome].inc()
        self.eviction_times.answered(result)
        self.decisions.evicted(result)
        if self._tracing is not None:
            self._tracing.evicted(result)

    def pod_seen(self, pod: PodObject) -> None:
        """Start to measure the wait of a pod for the metrics."""
        spec = pod.spec
        if not (spec.node_name or spec.scheduling_gates or pod.metadata.deletion_timestamp):
            self.bind_times.pod_waits(pod.metadata.uid)

    def pod_gone(self, uid: str) -> None:
        self.bind_times.pod_gone(uid)
        self.eviction_times.pod_gone(uid)

    def self_check_failed(self, accounts: int) -> None:
        self._self_checks.inc(accounts)

    def distrusted(self, key: str) -> None:
        self._distrusted.labels(key).inc()

    def run_time_exceeded(self, policy: str) -> None:
        self._exceeded.labels(policy).inc()

    def failed(self, part: str) -> None:
        """Count a failure of a part; `part` is one of `_PARTS`."""
        self._failures.labels(part).inc()

    def status_refused(self, kind: str) -> None:
        self._statuses_refused.labels(kind).inc()

    def refused_by_kubelet(self, reason: str) -> None:
        self._refusals.labels(reason).inc()

    def nominated(self, outcome: NominationOutcome) -> None:
        self._nominations[outcome].inc()

    async def serve(self, observed: Observed) -> None:
        """Serve the metrics endpoint until cancelled. Raises EndpointError for an unusable address or
        certificate."""
        if self.endpoint.address:
            async with serving(self.endpoint, observed, partial(self._exposition, observed)):
                with self._gc_pauses.measured():
                    await self._measure_lag()

    def _exposition(self, observed: Observed) -> bytes:
        counted = "\n".join([*self.bind_times.lines(), *observed.counted(), ""]).encode()
        return generate_latest(self.registry) + counted

    async def _measure_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_PERIOD
            await asyncio.sleep(_LAG_PERIOD)
            self._lag.observe(max(0.0, loop.time() - due))


def _seen(known: set[str], value: str, most: int) -> str:
    """Return the value of a metric label, or OTHER if the label has `most` values already."""
    if value not in known and len(known) >= most:
        return OTHER
    known.add(value)
    return value
