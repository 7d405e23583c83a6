"""Section of the report about promised starts: their deviations, and the idle amount that is reserved for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from phalanx.simulation.report.charts import lines
from phalanx.simulation.report.grids import histogram
from phalanx.simulation.report.metric_words import shown_cell, words_of
from phalanx.simulation.runs import RunResult

_METRICS = (
    "promises", "broken_promises", "promises_kept_ratio", "mean_lateness_seconds", "max_lateness_seconds",
    "mean_earliness_seconds", "reserved_idle_gpu_hours", "reserved_idle_cpu_hours",
)  # fmt: skip
# Upper bounds in seconds of the deviation of a start from the first promise, negative if early.
_BINS = (
    ("> 12h early", -43200), ("> 4h", -14400), ("> 1h", -3600), ("> 10m", -600), ("early", -1), ("on time", 0),
    ("late", 599), ("> 10m", 3599), ("> 1h late", 2**62),
)  # fmt: skip


def promise_section(summary: Mapping[str, Any], runs: Sequence[RunResult]) -> list[str]:
    """Return the section, empty if no start was promised."""
    if not any(run["metrics"]["promises"] for run in summary["runs"]):
        return []
    head = "".join(f"<th>{escape(policy)}</th>" for policy in summary["policies"])
    rows = "".join(
        f"<tr><th>{words_of(name).words}</th>"
        + "".join(
            f"<td>{shown_cell(words_of(name), summary['comparison'][name].get(policy))}</td>"
            for policy in summary["policies"]
        )
        + "</tr>\n"
        for name in _METRICS
    )
    reserved = [
        (run.policy, [((sample.time - run.start) / 3600, 100 * sample.reserved_idle) for sample in run.samples])
        for run in runs
    ]
    main = runs[0].metrics["utilisation_resource"]
    return [
        f"<h2>Promises</h2>\n<table><thead><tr><th></th>{head}</tr></thead>{rows}</table>\n",
        histogram(
            "Starts relative to the first promised start",
            [name for name, _ in _BINS],
            [(run.policy, _counts(run)) for run in runs],
        ),
        *[_slips(run) for run in runs],
        lines(f"Part of {main} that is idle for reserved starts", reserved, "%"),
    ]


def _counts(run: RunResult) -> list[int]:
    counts = [0] * len(_BINS)
    for job in run.jobs:
        late = job.lateness
        if late is not None:
            counts[next(index for index, (_, bound) in enumerate(_BINS) if late <= bound)] += 1
    return counts


def _slips(run: RunResult) -> str:
    """Return the causes of late starts with their counts."""
    causes = Counter(job.slip or "no named cause" for job in run.jobs if (job.lateness or 0) > 0)
    if not causes:
        return ""
    counts = ", ".join(f"{escape(cause)}: {count}" for cause, count in causes.most_common())
    return f"<p>{escape(run.policy)}, causes of late starts: {counts}.</p>\n"
