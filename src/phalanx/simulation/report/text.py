"""Report of a simulation for terminals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.simulation.runs import RunResult

HEADLINES = (
    "jobs", "jobs_done", "jobs_killed_at_limit", "jobs_withdrawn", "jobs_running", "jobs_waiting",
    "mean_bounded_slowdown", "p50_bounded_slowdown", "p99_bounded_slowdown", "mean_wait_seconds",
    "p50_wait_seconds", "p90_wait_seconds", "p99_wait_seconds", "max_wait_seconds", "mean_flow_seconds",
    "makespan_seconds", "utilisation", "gpu_allocation_ratio", "final_gpu_allocation_ratio", "fragmentation",
    "jain_index", "mean_share_gap", "promises", "broken_promises",
    "promises_kept_ratio", "mean_lateness_seconds", "max_lateness_seconds", "mean_earliness_seconds",
    "reserved_idle_gpu_hours", "reserved_idle_cpu_hours", "goodput", "wasted_pod_hours", "evictions_per_1000_gangs",
    "restarts", "cycles",
)  # fmt: skip


def table_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return one row per metric and one column per policy: means over the seeds, with half the interval's width."""
    policies: list[str] = summary["policies"]
    rows = [["METRIC", *(policy.upper() for policy in policies)]]
    for name in HEADLINES:
        entry = summary["comparison"].get(name)
        if entry:
            rows.append([name, *(cell(entry.get(policy)) for policy in policies)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(policies) + 1)]
    return ["   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def warning_lines(runs: Sequence[RunResult]) -> list[str]:
    """Return warnings about results that are unreliable or invalid."""
    warnings = []
    for run in runs:
        prefix = f"warning: {run.policy}, seed {run.seed}:"
        if run.metrics["saturated"]:
            warnings.append(
                f"{prefix} the queue was still growing at the end. More jobs arrived than the cluster can run,"
                " so waits depend more on the simulated time than on the policy."
            )
        if run.failures:
            warnings.append(f"{prefix} the scheduler failed: {run.failures[0]}")
    return warnings


def cell(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "-"
    if entry["low"] is None or entry["low"] == entry["high"]:
        return number(entry["mean"])
    return f"{number(entry['mean'])} ± {number((entry['high'] - entry['low']) / 2)}"


def number(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.3f}" if abs(value) < 1000 else f"{value:,.1f}"


def speed_lines(results: Sequence[tuple[RunResult, float]]) -> list[str]:
    """Return the speed of each run; it depends on the machine, so no file has it."""
    lines = []
    for run, seconds in results:
        speed = run.speed
        speedup = (run.end - run.start) / seconds if seconds else 0.0
        lines.append(
            f"{run.policy}, seed {run.seed}: {seconds:.1f} s; {speed.pod_events / seconds:,.0f} pod events/s,"
            f" {speed.decisions / seconds:,.0f} decisions/s, {speed.cycles / seconds:,.0f} cycles/s,"
            f" {speedup:,.0f} times real time"
        )
    return lines
