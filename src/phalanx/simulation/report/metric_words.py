"""Metrics in words: the name, unit and better direction of each metric that reports show."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.model.text.moments import shown_span

_MAX_DECIMALS_BELOW = 1000


class MetricUnit(enum.Enum):
    """Unit of a metric's values."""

    COUNT = "count"
    SECONDS = "seconds"
    PART = "part"  # 0 to 1, shown in percent
    POINTS = "points"  # difference of two parts, shown in percentage points: it is no percentage of either
    NUMBER = "number"
    HOURS = "hours"


class Better(enum.Enum):
    """Direction in which a metric improves."""

    LESS = "less"
    MORE = "more"
    NEITHER = "neither"


class MetricWords(msgspec.Struct, frozen=True):
    """One metric: its key in summary.json, its name in words, its unit, and its better direction.

    `of_promises` metrics have no meaning without promised starts."""

    key: str
    words: str
    unit: MetricUnit = MetricUnit.COUNT
    better: Better = Better.NEITHER
    of_promises: bool = False


_LESS, _MORE = Better.LESS, Better.MORE
METRICS = (
    MetricWords("never_started", "Jobs that never started", better=_LESS),
    MetricWords("jobs", "Jobs"),
    MetricWords("jobs_done", "Jobs done", better=_MORE),
    MetricWords("jobs_killed_at_limit", "Jobs killed at their limit", better=_LESS),
    MetricWords("jobs_withdrawn", "Jobs withdrawn by their users", better=_LESS),
    MetricWords("jobs_running", "Jobs that run at the end"),
    MetricWords("jobs_waiting", "Jobs that wait at the end", better=_LESS),
    MetricWords("jobs_not_submitted", "Jobs that arrive after the end"),
    MetricWords("mean_wait_seconds", "Wait, mean", MetricUnit.SECONDS, _LESS),
    MetricWords("p50_wait_seconds", "Wait, median", MetricUnit.SECONDS, _LESS),
    MetricWords("p90_wait_seconds", "Wait, 90 % of jobs at most", MetricUnit.SECONDS, _LESS),
    MetricWords("p99_wait_seconds", "Wait, 99 % of jobs at most", MetricUnit.SECONDS, _LESS),
    MetricWords("max_wait_seconds", "Wait, longest", MetricUnit.SECONDS, _LESS),
    MetricWords("mean_bounded_slowdown", "Bounded slowdown, mean", MetricUnit.NUMBER, _LESS),
    MetricWords("p50_bounded_slowdown", "Bounded slowdown, median", MetricUnit.NUMBER, _LESS),
    MetricWords("p99_bounded_slowdown", "Bounded slowdown, 99 % of jobs at most", MetricUnit.NUMBER, _LESS),
    MetricWords("mean_flow_seconds", "Time from submission to end, mean", MetricUnit.SECONDS, _LESS),
    MetricWords("makespan_seconds", "Time from the first submission to the last end", MetricUnit.SECONDS, _LESS),
    MetricWords("utilisation", "Used part of the cluster", MetricUnit.PART, _MORE),
    MetricWords("gpu_allocation_ratio", "Allocated part of the GPUs", MetricUnit.PART, _MORE),
    MetricWords("final_gpu_allocation_ratio", "Allocated part of the GPUs at the end", MetricUnit.PART),
    MetricWords("fragmentation", "Part of idle GPUs that no job can use", MetricUnit.PART, _LESS),
    MetricWords("jain_index", "Fairness between queues (Jain's index)", MetricUnit.NUMBER, _MORE),
    MetricWords("mean_share_gap", "Distance of queues from their fair shares", MetricUnit.PART, _LESS),
    MetricWords("evictions", "Evicted pods", better=_LESS),
    MetricWords("evictions_per_1000_gangs", "Evicted pods per 1,000 jobs", MetricUnit.NUMBER, _LESS),
    MetricWords("restarts", "Restarts of jobs", better=_LESS),
    MetricWords("pods_lost_with_nodes", "Pods lost with their nodes"),
    MetricWords("pods_failed", "Failed pods"),
    MetricWords("moves", "Pods moved by defragmentation"),
    MetricWords("goodput", "Part of the pod-hours whose work counted", MetricUnit.PART, _MORE),
    MetricWords("wasted_pod_hours", "Pod-hours lost", MetricUnit.NUMBER, _LESS),
    MetricWords("promises", "Promised starts", of_promises=True),
    MetricWords("broken_promises", "Promised starts broken without a named cause", better=_LESS, of_promises=True),
    MetricWords("slipped_promises", "Promised starts moved back for a named cause", better=_LESS, of_promises=True),
    MetricWords(
        "promises_kept_ratio", "Starts not later than first promised", MetricUnit.PART, _MORE, of_promises=True
    ),
    MetricWords(
        "mean_lateness_seconds", "Delay after the promised start, mean", MetricUnit.SECONDS, _LESS, of_promises=True
    ),
    MetricWords(
        "max_lateness_seconds",
        "Delay after the promised start, longest",
        MetricUnit.SECONDS,
        _LESS,
        of_promises=True,
    ),
    MetricWords(
        "mean_earliness_seconds", "Start before the promised start, mean", MetricUnit.SECONDS, of_promises=True
    ),
    MetricWords(
        "reserved_idle_gpu_hours", "Idle GPUs of reserved nodes", MetricUnit.HOURS, _LESS, of_promises=True
    ),
    MetricWords(
        "reserved_idle_cpu_hours", "Idle CPUs of reserved nodes", MetricUnit.HOURS, _LESS, of_promises=True
    ),
    MetricWords("coverage_p50", "Starts not later than the 50 % forecast", MetricUnit.PART, of_promises=True),
    MetricWords("coverage_p80", "Starts not later than the 80 % forecast", MetricUnit.PART, of_promises=True),
    MetricWords("coverage_p90", "Starts not later than the 90 % forecast", MetricUnit.PART, of_promises=True),
    *(
        MetricWords(
            f"allocation_at_load_{load}",
            f"Allocated part of the GPUs at {load} % requested",
            MetricUnit.PART,
            _MORE,
        )
        for load in (80, 90, 100, 110, 120, 130)
    ),
    MetricWords("cycles", "Scheduling cycles"),
    MetricWords("decisions", "Bindings and evictions"),
)
# Their zero means that the feature is not used.
_ONLY_IF_ANY = ("jobs_withdrawn", "reserved_idle_gpu_hours", "reserved_idle_cpu_hours", "fragmentation")
_BY_KEY = {metric.key: metric for metric in METRICS}


def shown_metrics(comparison: Mapping[str, Any]) -> list[MetricWords]:
    """Return the metrics that a table shows: not those of promises without a promised start, and not those that are
    zero under every policy unless the zero is a result."""
    promises = any(entry["mean"] for entry in comparison["promises"].values())
    shown = []
    for metric in METRICS:
        values = [entry["mean"] for entry in comparison.get(metric.key, {}).values()]
        is_result = metric.better is not Better.NEITHER and metric.key not in _ONLY_IF_ANY
        if values and (any(values) or is_result) and (promises or not metric.of_promises):
            shown.append(metric)
    return shown


def words_of(key: str) -> MetricWords:
    return _BY_KEY[key]


def shown_value(value: float, unit: MetricUnit, *, signed: bool = False) -> str:
    """Return a value with its unit, as `3 h 20 min`, `64 %` or `1,234`."""
    sign = ("+" if value > 0 else "−" if value < 0 else "") if signed else ("−" if value < 0 else "")
    size = abs(value)
    match unit:
        case MetricUnit.SECONDS:
            text = shown_span(round(size)) if size >= 10 else f"{number(round(size, 1))} s"
        case MetricUnit.PART:
            text = f"{number(round(100 * size, 1))} %"
        case MetricUnit.POINTS:
            text = f"{number(round(100 * size, 1))} points"
        case MetricUnit.HOURS:
            text = f"{number(round(size, 1))} h"
        case MetricUnit.COUNT:
            text = number(round(size, 1))
        case _:
            text = number(size)
    return sign + text


def number(value: float) -> str:
    """Return a number with thousands separators and at most three decimals."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.3f}".rstrip("0").rstrip(".") if abs(value) < _MAX_DECIMALS_BELOW else f"{value:,.1f}"


def shown_cell(metric: MetricWords, entry: Mapping[str, Any] | None) -> str:
    """Return the mean over the seeds with half the interval's width; `≥` marks a lower bound."""
    if entry is None:
        return "-"
    bound = "≥ " if entry.get("lower_bound") else ""
    text = bound + shown_value(entry["mean"], metric.unit)
    if entry["low"] is None or entry["low"] == entry["high"]:
        return text
    return f"{text} ± {shown_value((entry['high'] - entry['low']) / 2, metric.unit)}"


def shown_difference(metric: MetricWords, difference: Mapping[str, Any]) -> str:
    """Return the mean difference over the seeds with half the interval's width."""
    unit = MetricUnit.POINTS if metric.unit is MetricUnit.PART else metric.unit
    text = shown_value(difference["mean"], unit, signed=True)
    if difference["low"] is None or difference["low"] == difference["high"]:
        return text
    return f"{text} ± {shown_value((difference['high'] - difference['low']) / 2, unit)}"
