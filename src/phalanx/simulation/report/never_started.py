"""Jobs that never started: the first result of every report, because their waits have no end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.simulation.runs import RunResult

ALL_WIDTHS = "all widths"


def never_started_of(runs: Sequence[RunResult], policies: Sequence[str]) -> dict[str, object]:
    """Return by policy the numbers of jobs and of jobs that never started, over all seeds and by width."""
    entries: dict[str, object] = {}
    for policy in policies:
        by_width: dict[str, dict[str, int]] = {}
        for run in runs:
            for width, metrics in run.by_width.items() if run.policy == policy else ():
                counts = by_width.setdefault(width, {"jobs": 0, "never_started": 0})
                counts["jobs"] += int(metrics["jobs"])
                counts["never_started"] += int(metrics["never_started"])
        ordered = {width: by_width[width] for width in sorted(by_width, key=width_key)}
        entries[policy] = {
            "jobs": sum(counts["jobs"] for counts in by_width.values()),
            "never_started": sum(counts["never_started"] for counts in by_width.values()),
            "by_width": ordered,
        }
    return entries


def width_key(width: str) -> int:
    """Return the sort key of a width class such as `5-8`."""
    return int(width.rpartition("-")[2])


def never_started_rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return a header, a row for all jobs and one per width class: jobs that never started, of all jobs."""
    policies, counts = summary["policies"], summary["never_started"]
    widths = sorted({width for policy in policies for width in counts[policy]["by_width"]}, key=width_key)
    rows = [["NEVER STARTED", *(policy.upper() for policy in policies)]]
    rows.append([ALL_WIDTHS, *(_part(counts[policy]) for policy in policies)])
    if any(counts[policy]["never_started"] for policy in policies):
        rows += [
            [f"width {width}", *(_part(counts[policy]["by_width"].get(width)) for policy in policies)]
            for width in widths
        ]
    return rows


def _part(counts: Mapping[str, int] | None) -> str:
    return f"{counts['never_started']:,} of {counts['jobs']:,}" if counts else "-"
