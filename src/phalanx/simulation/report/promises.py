"""Section of the report about promised starts: their deviations, and the idle amount that is reserved for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from phalanx.simulation.report.charts import lines
from phalanx.simulation.report.grids import histogram
from phalanx.simulation.report.opening import TIME_AXIS, points, resource_words
from phalanx.simulation.runs import RunResult

# Upper bounds in seconds of the deviation of a start from the first promise, negative if early.
_BINS = (
    ("> 12 h early", -43200), ("> 4 h early", -14400), ("> 1 h early", -3600), ("> 10 min early", -600),
    ("early", -1), ("on time", 0), ("late", 599), ("> 10 min late", 3599), ("> 1 h late", 2**62),
)  # fmt: skip


def promise_section(summary: Mapping[str, Any], runs: Sequence[RunResult]) -> list[str]:
    """Return the section, empty if no start was promised."""
    if not any(run["metrics"]["promises"] for run in summary["runs"]):
        return []
    reserved = [(run.policy, points(run, lambda sample: 100 * sample.reserved_idle)) for run in runs]
    resource = resource_words(runs[0])
    return [
        "<h2>Promised starts</h2>\n",
        histogram(
            "Starts relative to the first promised start",
            [name for name, _ in _BINS],
            [(run.policy, _counts(run)) for run in runs],
            "start compared with the first promised start",
            "jobs",
        ),
        *[_slips(run) for run in runs],
        lines(
            f"Part of the {resource} that is idle for reserved starts",
            reserved,
            TIME_AXIS,
            f"idle {resource}",
            unit=" %",
        ),
    ]


def _counts(run: RunResult) -> list[int]:
    counts = [0] * len(_BINS)
    for job in run.jobs:
        late = job.lateness_at(run.end)
        if late is not None:
            counts[next(index for index, (_, bound) in enumerate(_BINS) if late <= bound)] += 1
    return counts


def _slips(run: RunResult) -> str:
    """Return the causes of late starts with their counts."""
    causes = Counter(job.slip or "no named cause" for job in run.jobs if (job.lateness_at(run.end) or 0) > 0)
    if not causes:
        return ""
    counts = ", ".join(f"{escape(cause)}: {count}" for cause, count in causes.most_common())
    return f"<p>{escape(run.policy)}, causes of late starts: {counts}.</p>\n"
