"""Table of all metrics of the scheduler: name, kind, labels and help."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


class Kind(enum.StrEnum):
    """Kind of a metric, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricFamily(msgspec.Struct, frozen=True):
    """Declaration of a metric; `name` is the served name, a counter's with `_total`.

    Labels are bounded: never a pod, a gang or a uid.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def powers(start: float, count: int, factor: float = 2.0) -> tuple[float, ...]:
    """Return the upper bounds of a histogram's buckets, each `factor` times the previous one."""
    return tuple(start * factor**step for step in range(count))


def _families() -> Iterator[MetricFamily]:
    counter, gauge, histogram = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
    # Metrics of kube-scheduler with the same meaning, labels and buckets (1.36).
    yield MetricFamily(
        "scheduler_pending_pods",
        gauge,
        "Pending pods by queue: active are tried in the next cycle, backoff at a later time, unschedulable after a "
        "change of the cluster; gated have gates or an incomplete gang",
        ("queue",),
    )
    yield MetricFamily(
        "scheduler_schedule_attempts_total",
        counter,
        "Scheduling attempts of pods by result and scheduler name",
        ("result", "profile"),
    )
    yield MetricFamily(
        "scheduler_podgroup_schedule_attempts_total",
        counter,
        "Scheduling attempts of gangs by result and scheduler name",
        ("result", "profile"),
    )
    yield MetricFamily(
        "scheduler_pod_scheduling_sli_duration_seconds",
        histogram,
        "Time from a pod's first entry into the queue to its binding, without gated time, by number of attempts",
        ("attempts",),
        powers(0.01, 20),
    )
    yield MetricFamily(
        "scheduler_pod_scheduling_attempts", histogram, "Attempts until a pod was bound", (), powers(1, 5)
    )
    yield MetricFamily("scheduler_preemption_attempts_total", counter, "Preemption attempts")
    yield MetricFamily("scheduler_preemption_victims", histogram, "Pods evicted per preemption", (), powers(1, 7))
    yield MetricFamily(
        "scheduler_cache_size", gauge, "Nodes, pods and assumed pods in the state of the scheduler", ("type",)
    )
    yield MetricFamily(
        "scheduler_pending_async_api_calls",
        gauge,
        "Queued writes to the API server by type",
        ("call_type",),
    )
    yield MetricFamily(
        "scheduler_async_api_call_execution_total",
        counter,
        "Bindings and pod status patches by result",
        ("call_type", "result"),
    )
    yield MetricFamily(
        "scheduler_async_api_call_execution_duration_seconds",
        histogram,
        "Duration of bindings and pod status patches by result",
        ("call_type", "result"),
        powers(0.001, 15),
    )
    yield MetricFamily(
        "rest_client_requests_total",
        counter,
        "Requests to the API server; the code is `<error>` without an answer",
        ("code", "method", "host"),
    )
    yield MetricFamily(
        "rest_client_request_duration_seconds",
        histogram,
        "Duration of requests to the API server, without watches",
        ("verb", "host"),
        (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
    )
    yield MetricFamily(
        "leader_election_master_status",
        gauge,
        "1 for the leader, 0 for a standby; name is the name of the lease",
        ("name",),
    )
    yield MetricFamily(
        "phalanx_replica_role",
        gauge,
        "1; the label is leader or standby, for joins with other series of the replica",
        ("replica_role",),
    )
    # Planning.
    yield MetricFamily(
        "phalanx_cycle_duration_seconds", histogram, "Duration of a planning cycle", (), powers(0.001, 14)
    )
    yield MetricFamily(
        "phalanx_stage_duration_seconds",
        histogram,
        "Duration of a stage of a cycle: pop, order, act_ and the name of an action, requeue, publish; execute "
        "submits the plan",
        ("stage",),
        powers(0.0001, 16),
    )
    yield MetricFamily(
        "phalanx_cycle_interrupted_total", counter, "Cycles that were ended by their time budget", ("reason",)
    )
    yield MetricFamily(
        "phalanx_last_cycle_timestamp_seconds", gauge, "End of the last cycle in seconds since the epoch"
    )
    # Pending gangs.
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
        "Pending gangs by queue and reason of the verdict; all gangs beyond 200 series count as other",
        ("queue", "reason"),
    )
    yield MetricFamily("phalanx_oldest_waiting_gang_seconds", gauge, "Age of the oldest pending gang", ("queue",))
    yield MetricFamily(
        "phalanx_gang_wait_time_seconds",
        histogram,
        "Time from the creation of a gang to the decision that starts it, by queue and priority class",
        ("queue", "priority_class"),
        (1, *powers(2.5, 15)),
    )
    # Writes.
    yield MetricFamily("phalanx_bindings_total", counter, "Bindings by outcome", ("outcome",))
    yield MetricFamily(
        "phalanx_binding_duration_seconds",
        histogram,
        "Time from the decision of a binding to the API server's answer",
        (),
        powers(0.001, 16),
    )
    yield MetricFamily(
        "phalanx_gang_bind_span_seconds",
        histogram,
        "Time from the first to the last answer for the bindings of a gang that were decided together",
        (),
        powers(0.001, 16),
    )
    yield MetricFamily(
        "phalanx_api_write_concurrency",
        gauge,
        "Current limit of concurrent writes to the API server; lower after an overload",
    )
    yield MetricFamily("phalanx_nominations_total", counter, "Nominations of nodes by outcome", ("outcome",))
    yield MetricFamily("phalanx_eviction_decisions_total", counter, "Eviction decisions by reason", ("reason",))
    yield MetricFamily("phalanx_evictions_total", counter, "Evictions by reason and outcome", ("reason", "outcome"))
    yield MetricFamily("phalanx_eviction_victims", histogram, "Pods evicted per decision", (), powers(1, 13))
    yield MetricFamily(
        "phalanx_eviction_duration_seconds",
        histogram,
        "Time from the API server's answer to an eviction to the deletion of the pod",
        (),
        (1, *powers(2.5, 11)),
    )
    yield MetricFamily(
        "phalanx_repeated_gang_evictions_total",
        counter,
        "Eviction decisions for a gang that was already evicted three times within the hour before",
    )
    yield MetricFamily(
        "phalanx_eviction_search_duration_seconds",
        histogram,
        "Duration of a search for victims by outcome: evicts (victims found), waits (terminating pods suffice), "
        "nothing (no solution)",
        ("outcome",),
        powers(0.0001, 16),
    )
    yield MetricFamily(
        "phalanx_preemption_searches_failed_total",
        counter,
        "Searches for victims without a solution, or with evictions that lose more work than they gain",
    )
    # Accounts, computed per scrape.
    yield MetricFamily(
        "phalanx_account_resource",
        gauge,
        "Amounts of an account in milli-CPU, bytes or units; kind is used, pending, "
        "guarantee, deserved or capability; account other is the sum of the accounts without own series",
        ("account", "family", "kind", "resource"),
    )
    yield MetricFamily(
        "phalanx_account_share",
        gauge,
        "Dominant share of an account: its largest part of the capacity of a resource",
        ("account", "family"),
    )
    yield MetricFamily(
        "phalanx_account_info", gauge, "Parent of an account in its tree", ("account", "family", "parent")
    )
    # Features of policies.
    yield MetricFamily(
        "phalanx_start_forecast_coverage",
        gauge,
        "Part of the last 300 starts not later than the predicted quantile, of promises and forecasts",
        ("basis", "queue", "quantile"),
    )
    yield MetricFamily(
        "phalanx_start_forecast_pinball_loss_seconds",
        gauge,
        "Mean pinball loss of the predicted quantiles over the last 300 starts",
        ("basis", "queue"),
    )
    yield MetricFamily(
        "phalanx_promised_starts_total",
        counter,
        "Promised starts by outcome: Kept, or the cause of a late or lost start (Unknown: a fault of Phalanx)",
        ("outcome",),
    )
    yield MetricFamily(
        "phalanx_promised_start_lateness_seconds_total",
        counter,
        "Sum of the delays of promised starts that were late, by cause",
        ("cause",),
    )
    yield MetricFamily(
        "phalanx_earliest_promised_start_timestamp_seconds",
        gauge,
        "Earliest published start of the units with a promised start; in the past, a promise is past its time",
        (),
    )
    yield MetricFamily(
        "phalanx_defragmentation_runs_total",
        counter,
        "Runs of the action defragment by outcome",
        ("outcome",),
    )
    yield MetricFamily("phalanx_defragmentation_evictions_total", counter, "Pods that defragmentation moved")
    yield MetricFamily(
        "phalanx_defragmentation_evictions_left", gauge, "Remaining evictions of defragmentation within the hour"
    )
    yield MetricFamily(
        "phalanx_run_times_exceeded_total",
        counter,
        "Gangs and single pods that exceeded their run time, by the policy for exceeded run times",
        ("policy",),
    )
    # Cluster and API server.
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
        "Requests to the API server by resource (pods/binding for that subresource) and HTTP status; 0 without an "
        "answer",
        ("verb", "resource", "code"),
    )
    yield MetricFamily(
        "phalanx_watch_lag_seconds",
        gauge,
        "Age of the state of a resource: 0 while it is watched, else seconds since the API server's last answer",
        ("resource",),
    )
    yield MetricFamily(
        "phalanx_watch_restarts_total",
        counter,
        "Watches and lists that failed, by reason: an HTTP status, connection, or error",
        ("resource", "reason"),
    )
    yield MetricFamily(
        "phalanx_events_dropped_total", counter, "Kubernetes events that were dropped because of overload"
    )
    # Errors.
    yield MetricFamily(
        "phalanx_kubelet_rejections_total", counter, "Bound pods that their kubelet rejected", ("reason",)
    )
    yield MetricFamily(
        "phalanx_distrusted_annotations_total",
        counter,
        "Pods with an ignored annotation: the key is the scheduler's, the signature is not of this pod",
        ("key",),
    )
    yield MetricFamily(
        "phalanx_status_writes_refused_total", counter, "Status writes that the API server rejected", ("kind",)
    )
    yield MetricFamily(
        "phalanx_failures_total",
        counter,
        "Errors that were caught in a part of the process: should stay 0",
        ("part",),
    )
    yield MetricFamily(
        "phalanx_self_check_failures_total",
        counter,
        "Accounts that differed from the sum of their pods in --self-check or /debug/state: should stay 0",
    )
    yield MetricFamily(
        "phalanx_ready",
        gauge,
        "Checks of /readyz?verbose, 1 for true: leader, synced, fresh, policy (the policy in force is the one in "
        "the file)",
        ("check",),
    )
    # Process.
    yield MetricFamily(
        "phalanx_event_loop_lag_seconds",
        histogram,
        "Delay of timers in the event loop",
        (),
        powers(0.001, 14),
    )
    yield MetricFamily(
        "phalanx_gc_pause_seconds",
        histogram,
        "Pause of the process for Python's garbage collection, by generation",
        ("generation",),
        powers(0.0001, 15),
    )
    yield MetricFamily("phalanx_build_info", gauge, "Version of the scheduler", ("version",))


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
    """Return an empty metric family for a collector that computes its samples per scrape."""
    family = FAMILIES[name]
    make = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    return make(name, family.help, labels=family.labels)


def _of(name: str, kind: Kind) -> MetricFamily:
    family = FAMILIES[name]
    assert family.kind is kind, name
    return family


def table(families: Sequence[MetricFamily]) -> str:
    """Return the metric families as a Markdown table for the documentation."""
    rows = ((f"`{family.name}`", family.kind, ", ".join(family.labels), family.help) for family in families)
    return "\n".join(
        ["| name | kind | labels | |", "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    )
