"""Report of a simulation for terminals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.simulation.report.metric_words import shown_cell, shown_metrics
from phalanx.simulation.report.never_started import never_started_rows
from phalanx.simulation.report.owner_summary import owner_sentences
from phalanx.simulation.runs import RunResult

# Shown on the page only.
_PAGE_ONLY = (
    "never_started",
    "final_gpu_allocation_ratio",
    "pods_lost_with_nodes",
    "coverage_p50",
    "coverage_p80",
    "coverage_p90",
)
_BOUND_NOTE = "≥: at least this much, because jobs had not started or not ended at the end of the simulation."


def table_lines(summary: Mapping[str, Any], runs: Sequence[RunResult]) -> list[str]:
    """Return the jobs that never started by width, then one row per metric and one column per policy.

    The values are means over the seeds, with half the interval's width. The sentences for an owner stand between
    both if there are policies to compare."""
    policies: list[str] = summary["policies"]
    rows = [["METRIC", *(policy.upper() for policy in policies)]]
    for metric in shown_metrics(summary["comparison"]):
        if metric.key not in _PAGE_ONLY:
            entry = summary["comparison"][metric.key]
            rows.append([metric.words, *(shown_cell(metric, entry.get(policy)) for policy in policies)])
    bounded = any("≥" in text for row in rows for text in row)
    sentences = ["", *owner_sentences(summary, runs)] if len(policies) > 1 else []
    return [
        *_aligned(never_started_rows(summary)),
        *sentences,
        "",
        *_aligned(rows),
        *([_BOUND_NOTE] if bounded else []),
    ]


def change_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return the numbers of skipped and changed lines of the workload files, by reason."""
    return [
        f"{entry['file']}: {entry['lines']:,} line{'s' if entry['lines'] > 1 else ''}"
        f" {'skipped' if entry['skipped'] else 'changed'}: {entry['reason']}"
        for entry in summary["input_changes"]
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def warning_lines(runs: Sequence[RunResult]) -> list[str]:
    """Return warnings about results that are unreliable or invalid."""
    warnings = []
    for run in runs:
        prefix = f"warning: {run.policy}, seed {run.seed}:"
        if run.metrics["saturated"]:
            warnings.append(
                f"{prefix} the queue was still growing when the last jobs arrived. More jobs arrived than the"
                " cluster can run, so waits depend more on the simulated time than on the policy."
            )
        if run.failures:
            warnings.append(f"{prefix} the scheduler failed: {run.failures[0]}")
    return warnings


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
