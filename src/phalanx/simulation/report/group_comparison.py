"""Comparison of policies by width and by queue, with the same intervals and marks as that of all jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from phalanx.simulation.report.comparison import compare
from phalanx.simulation.report.never_started import width_key
from phalanx.simulation.runs import RunResult

# Counts that are no lower bounds, whatever has not started.
_COUNTS = ("jobs", "never_started", "censored_waits")
# By group: the comparison of its metrics.
GroupComparisons = Mapping[str, Mapping[str, Any]]


def by_width(runs: Sequence[RunResult]) -> GroupComparisons:
    """Return the comparison of each width class, the narrowest first."""
    groups = sorted({width for run in runs for width in run.by_width}, key=width_key)
    return {group: _compare(runs, [run.by_width.get(group) for run in runs]) for group in groups}


def by_queue(runs: Sequence[RunResult]) -> GroupComparisons:
    """Return the comparison of each queue by name."""
    groups = sorted({queue for run in runs for queue in run.by_queue})
    return {group: _compare(runs, [run.by_queue.get(group) for run in runs]) for group in groups}


def _compare(
    runs: Sequence[RunResult], metrics_of_runs: Sequence[Mapping[str, float | int] | None]
) -> Mapping[str, Any]:
    """Return the comparison of the metrics of one group of jobs; None for a run without such jobs."""
    of_group = []
    for run, metrics in zip(runs, metrics_of_runs, strict=True):
        if metrics is not None:
            bounds = [key for key in metrics if key not in _COUNTS] if metrics["censored_waits"] else []
            of_group.append(msgspec.structs.replace(run, metrics=dict(metrics), lower_bounds=bounds))
    return compare(of_group, runs[0].policy)
