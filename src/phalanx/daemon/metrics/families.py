"""Every metric that the scheduler serves: name, kind, labels and meaning, in one table."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


class Kind(enum.StrEnum):
    """The value is Prometheus' word."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricFamily(msgspec.Struct, frozen=True):
    """`name` is as it is served, a counter's with `_total`. Labels are bounded: never a pod, a gang or a uid."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def powers(start: float, count: int, factor: float = 2.0) -> tuple[float, ...]:
    """Upper bounds of a histogram's buckets."""
    return tuple(start * factor**step for step in range(count))


def _families() -> Iterator[MetricFamily]:
    counter, gauge, histogram = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
    # kube-scheduler's names, where they mean the same (1.36; labels and buckets too).
    yield MetricFamily(
        "scheduler_pending_pods",
        gauge,
        "Pods that wait: active have a turn in the next cycle, backoff wait for a time, unschedulable for room, "
        "gated have gates or wait for others of their gang",
        ("queue",),
    )
    yield MetricFamily(
        "scheduler_schedule_attempts_total",
        counter,
        "Pods decided on, by result and by the scheduler that they name",
        ("result", "profile"),
    )
    yield MetricFamily(
        "scheduler_podgroup_schedule_attempts_total",
        counter,
        "Gangs decided on, by result and by the scheduler that their pods name",
        ("result", "profile"),
    )
    yield MetricFamily(
        "scheduler_pod_scheduling_sli_duration_seconds",
        histogram,
        "From the moment a pod could be scheduled to its binding, gates left out, by the attempts it took",
        ("attempts",),
        powers(0.01, 20),
    )
    yield MetricFamily(
        "scheduler_pod_scheduling_attempts", histogram, "Attempts that a bound pod took", (), powers(1, 5)
    )
    yield MetricFamily("scheduler_preemption_attempts_total", counter, "Preemption attempts")
    yield MetricFamily(
        "scheduler_preemption_victims", histogram, "Pods that one preemption evicts", (), powers(1, 7)
    )
    yield MetricFamily(
        "scheduler_cache_size", gauge, "Nodes, pods and assumed pods that the scheduler has in mind", ("type",)
    )
    yield MetricFamily(
        "scheduler_pending_async_api_calls",
        gauge,
        "Writes that wait for their turn, by what they write",
        ("call_type",),
    )
    yield MetricFamily(
        "scheduler_async_api_call_execution_total",
        counter,
        "Bindings and patches of pods' statuses that were sent, by result",
        ("call_type", "result"),
    )
    yield MetricFamily(
        "scheduler_async_api_call_execution_duration_seconds",
        histogram,
        "How long the API server took for one of them",
        ("call_type", "result"),
        powers(0.001, 15),
    )
    yield MetricFamily(
        "rest_client_requests_total",
        counter,
        "Requests to the API server; the code is `<error>` where no answer came",
        ("code", "method", "host"),
    )
    yield MetricFamily(
        "rest_client_request_duration_seconds",
        histogram,
        "How long requests to the API server took, watches left out",
        ("verb", "host"),
        (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
    )
    yield MetricFamily(
        "leader_election_master_status", gauge, "1 for the replica that decides; name is the lease's", ("name",)
    )
    yield MetricFamily(
        "phalanx_replica_role",
        gauge,
        "1, to join with the other series of a replica: it is leader or standby",
        ("replica_role",),
    )
    # Planning.
    yield MetricFamily("phalanx_cycle_duration_seconds", histogram, "One planning cycle", (), powers(0.001, 14))
    yield MetricFamily(
        "phalanx_stage_duration_seconds",
        histogram,
        "One stage of a cycle: pop, order, act_ with the name of an action, requeue, publish; execute "
        "hands the plan out",
        ("stage",),
        powers(0.0001, 16),
    )
    yield MetricFamily(
        "phalanx_cycle_interrupted_total", counter, "Cycles that their budget of time ended", ("reason",)
    )
    yield MetricFamily("phalanx_last_cycle_timestamp_seconds", gauge, "When the last cycle ended, since the epoch")
    # Who waits.
    yield MetricFamily(
        "phalanx_gangs",
        gauge,
        "Gangs by state: pending, gated, other_scheduler, partial, starting, running, evicting, completing, "
        "completed, failed (docs/gang-states.md)",
        ("state",),
    )
    yield MetricFamily(
        "phalanx_pending_gangs",
        gauge,
        "Pending gangs by queue and reason of their verdict; beyond 200 series the rest is other",
        ("queue", "reason"),
    )
    yield MetricFamily("phalanx_oldest_waiting_gang_seconds", gauge, "How long the eldest gang waits", ("queue",))
    yield MetricFamily(
        "phalanx_gang_wait_time_seconds",
        histogram,
        "From the creation of a gang to the decision that starts it; the class is that of its priority",
        ("queue", "priority_class"),
        (1, *powers(2.5, 15)),
    )
    # What is written.
    yield MetricFamily("phalanx_bindings_total", counter, "Bindings by outcome", ("outcome",))
    yield MetricFamily(
        "phalanx_binding_duration_seconds",
        histogram,
        "From the decision to the API server's answer",
        (),
        powers(0.001, 16),
    )
    yield MetricFamily(
        "phalanx_gang_bind_span_seconds",
        histogram,
        "From the first to the last answer to the bindings of a gang that were decided together",
        (),
        powers(0.001, 16),
    )
    yield MetricFamily(
        "phalanx_api_write_concurrency",
        gauge,
        "Concurrent writes to the API server: fewer after it was overloaded",
    )
    yield MetricFamily("phalanx_nominations_total", counter, "Promises of room by outcome", ("outcome",))
    yield MetricFamily("phalanx_eviction_decisions_total", counter, "Eviction decisions by reason", ("reason",))
    yield MetricFamily("phalanx_evictions_total", counter, "Evictions by reason and outcome", ("reason", "outcome"))
    yield MetricFamily("phalanx_eviction_victims", histogram, "Pods evicted per decision", (), powers(1, 13))
    yield MetricFamily(
        "phalanx_eviction_duration_seconds",
        histogram,
        "From the API server's answer to an eviction until the pod is gone: its grace",
        (),
        (1, *powers(2.5, 11)),
    )
    yield MetricFamily(
        "phalanx_repeated_gang_evictions_total",
        counter,
        "Decisions to evict of a gang of which three decisions within the hour before had evicted as well",
    )
    yield MetricFamily(
        "phalanx_eviction_search_duration_seconds",
        histogram,
        "How long one search for victims took: evicts found some, waits found that room comes free anyway, nothing "
        "that no choice helps",
        ("outcome",),
        powers(0.0001, 16),
    )
    yield MetricFamily(
        "phalanx_preemption_searches_failed_total",
        counter,
        "Searches for victims without a result, or whose evictions would lose more work than they gain",
    )
    # Accounts, computed when asked for.
    yield MetricFamily(
        "phalanx_account_resource",
        gauge,
        "What an account holds, waits for and is given: milli-CPU, bytes, or pieces; kind is used, pending, "
        "guarantee, deserved or capability; other is the rest of those without children",
        ("account", "family", "kind", "resource"),
    )
    yield MetricFamily(
        "phalanx_account_share",
        gauge,
        "Its dominant share: the largest part that it holds of what all nodes offer of a resource",
        ("account", "family"),
    )
    yield MetricFamily(
        "phalanx_account_info", gauge, "Where an account stands in its tree", ("account", "family", "parent")
    )
    # What policies ask for.
    yield MetricFamily(
        "phalanx_start_forecast_coverage",
        gauge,
        "Part of the last 300 starts that were not later than the quantile said, of promises and of forecasts",
        ("basis", "queue", "quantile"),
    )
    yield MetricFamily(
        "phalanx_start_forecast_pinball_loss_seconds",
        gauge,
        "Mean pinball loss of the quantiles over the last 300 starts",
        ("basis", "queue"),
    )
    yield MetricFamily(
        "phalanx_promised_starts_total",
        counter,
        "Promised starts by what became of them: Kept, or why they were late or lost",
        ("outcome",),
    )
    yield MetricFamily(
        "phalanx_defragmentation_runs_total",
        counter,
        "Runs of the action defragment by what came of them",
        ("outcome",),
    )
    yield MetricFamily("phalanx_defragmentation_evictions_total", counter, "Pods that it moved")
    yield MetricFamily(
        "phalanx_defragmentation_evictions_left", gauge, "How many more pods it may move within the hour"
    )
    yield MetricFamily(
        "phalanx_run_times_exceeded_total",
        counter,
        "Gangs, and pods on their own, that ran longer than they may, by what the policy says about it",
        ("policy",),
    )
    # The cluster and the API server.
    yield MetricFamily("phalanx_nodes", gauge, "Nodes by state: schedulable, unschedulable", ("state",))
    yield MetricFamily(
        "phalanx_max_available_replicas",
        gauge,
        "Pods that fit now on ready and schedulable nodes, if each requests per_pod of one resource",
        ("resource", "per_pod"),
    )
    yield MetricFamily(
        "phalanx_api_requests_total",
        counter,
        "Requests to the API server, by resource (pods/binding for that subresource) and HTTP status; 0 where no "
        "answer came",
        ("verb", "resource", "code"),
    )
    yield MetricFamily(
        "phalanx_watch_lag_seconds",
        gauge,
        "How old the knowledge of a resource is: 0 while it is watched, else since the API server was last heard",
        ("resource",),
    )
    yield MetricFamily(
        "phalanx_watch_restarts_total",
        counter,
        "Watches and lists that ended otherwise than by agreement: an HTTP status, connection, or error",
        ("resource", "reason"),
    )
    yield MetricFamily(
        "phalanx_events_dropped_total", counter, "Events for users that were not written, for overload"
    )
    # What went wrong.
    yield MetricFamily(
        "phalanx_kubelet_rejections_total", counter, "Bound pods that their kubelet rejected", ("reason",)
    )
    yield MetricFamily(
        "phalanx_distrusted_annotations_total",
        counter,
        "Pods with an annotation of ours that we have not made for them, and ignore",
        ("key",),
    )
    yield MetricFamily(
        "phalanx_status_writes_refused_total", counter, "Statuses that the API server did not want", ("kind",)
    )
    yield MetricFamily(
        "phalanx_failures_total", counter, "What raised and was passed over: should stay 0", ("part",)
    )
    yield MetricFamily(
        "phalanx_self_check_failures_total",
        counter,
        "Accounts that differed from what their pods say, when --self-check or /debug/state looked: should stay 0",
    )
    yield MetricFamily(
        "phalanx_ready",
        gauge,
        "What /readyz?verbose shows, 1 where it is so: leader, synced, fresh, and policy (the file in force is the "
        "one on disk)",
        ("check",),
    )
    # The process.
    yield MetricFamily(
        "phalanx_event_loop_lag_seconds",
        histogram,
        "How much later than asked for the process gets to what is due",
        (),
        powers(0.001, 14),
    )
    yield MetricFamily(
        "phalanx_gc_pause_seconds",
        histogram,
        "How long the process stood still for a collection of Python's garbage, by its generation",
        ("generation",),
        powers(0.0001, 15),
    )
    yield MetricFamily("phalanx_build_info", gauge, "The version that runs", ("version",))


FAMILIES: Final = {family.name: family for family in _families()}


def counter(name: str, registry: CollectorRegistry) -> Counter:
    family = _of(name, Kind.COUNTER)
    return Counter(name, family.help, family.labels, registry=registry)


def gauge(name: str, registry: CollectorRegistry) -> Gauge:
    family = _of(name, Kind.GAUGE)
    return Gauge(name, family.help, family.labels, registry=registry)


def histogram(name: str, registry: CollectorRegistry) -> Histogram:
    family = _of(name, Kind.HISTOGRAM)
    return Histogram(name, family.help, family.labels, registry=registry, buckets=family.buckets)


def computed(name: str) -> CounterMetricFamily | GaugeMetricFamily:
    """For a collector that makes its samples when somebody asks."""
    family = FAMILIES[name]
    make = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    return make(name, family.help, labels=family.labels)


def _of(name: str, kind: Kind) -> MetricFamily:
    family = FAMILIES[name]
    assert family.kind is kind, name
    return family


def table(families: Sequence[MetricFamily]) -> str:
    """In Markdown, for the documentation."""
    rows = ((f"`{family.name}`", family.kind, ", ".join(family.labels), family.help) for family in families)
    return "\n".join(
        ["| name | kind | labels | |", "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    )
