"""The part of the page about starts that were promised: how far from it they came, and what keeping room costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from phalanx.simulation.report.charts import lines
from phalanx.simulation.report.grids import histogram
from phalanx.simulation.report.text import cell
from phalanx.simulation.runs import RunResult

_METRICS = (
    "promises", "broken_promises", "promises_kept_ratio", "mean_lateness_seconds", "max_lateness_seconds",
    "mean_earliness_seconds", "reserved_idle_gpu_hours", "reserved_idle_cpu_hours",
)  # fmt: skip
# By how many seconds a start came after (or before, if negative) what was promised first.
_BINS = (
    ("> 12h early", -43200), ("> 4h", -14400), ("> 1h", -3600), ("> 10m", -600), ("early", -1), ("on time", 0),
    ("late", 599), ("> 10m", 3599), ("> 1h late", 2**62),
)  # fmt: skip


def promise_section(summary: Mapping[str, Any], runs: Sequence[RunResult]) -> list[str]:
    """Only where somebody promised something."""
    if not any(run["metrics"]["promises"] for run in summary["runs"]):
        return []
    head = "".join(f"<th>{escape(policy)}</th>" for policy in summary["policies"])
    rows = "".join(
        f"<tr><th>{name}</th>"
        + "".join(f"<td>{cell(summary['comparison'][name].get(policy))}</td>" for policy in summary["policies"])
        + "</tr>\n"
        for name in _METRICS
    )
    reserved = [
        (run.policy, [((each.time - run.start) / 3600, 100 * each.reserved_idle) for each in run.samples])
        for run in runs
    ]
    main = runs[0].metrics["utilisation_resource"]
    return [
        f"<h2>Promises</h2>\n<table><thead><tr><th></th>{head}</tr></thead>{rows}</table>\n",
        histogram(
            "Starts against the first promise",
            [name for name, _ in _BINS],
            [(run.policy, _counts(run)) for run in runs],
        ),
        *[_slips(run) for run in runs],
        lines(f"Part of {main} that stands idle because a start is kept", reserved, "%"),
    ]


def _counts(run: RunResult) -> list[int]:
    found = [0] * len(_BINS)
    for job in run.jobs:
        late = job.lateness
        if late is not None:
            found[next(place for place, (_, most) in enumerate(_BINS) if late <= most)] += 1
    return found


def _slips(run: RunResult) -> str:
    """The causes of those that came late."""
    causes = Counter(job.slip or "no named cause" for job in run.jobs if (job.lateness or 0) > 0)
    if not causes:
        return ""
    told = ", ".join(f"{escape(cause)}: {count}" for cause, count in causes.most_common())
    return f"<p>{escape(run.policy)}, late for: {told}.</p>\n"
