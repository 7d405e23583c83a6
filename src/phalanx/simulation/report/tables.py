"""Tables of the page: metrics in words, with better and worse marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from phalanx.simulation.history import JobHistory
from phalanx.simulation.metrics import job_slowdown
from phalanx.simulation.report.effects import Effect, effect
from phalanx.simulation.report.group_comparison import GroupComparisons
from phalanx.simulation.report.metric_words import (
    MetricUnit,
    MetricWords,
    number,
    shown_cell,
    shown_difference,
    shown_metrics,
    shown_value,
    words_of,
)
from phalanx.simulation.runs import RunResult
from phalanx.simulation.workloads.changes import InputChange, count_changes

_WORST = 20
_MOST_LINES = 50
_OF_GROUPS = ("jobs", "never_started", "mean_wait_seconds", "p90_wait_seconds", "max_wait_seconds",
              "mean_bounded_slowdown")  # fmt: skip
_NOTE = (
    "± is half the width of the 95 % interval over the seeds; differences are between runs of one seed."
    " Better and worse compare with the first policy; a difference within the interval is unclear, and so is a"
    " better value of a policy under which more jobs had not started. A difference of two percentages is in points."
    " ≥: at least this much, because jobs had not started or not ended at the end of the simulation."
)


def metric_table(summary: Mapping[str, Any]) -> str:
    """Return the metrics of all policies, with the difference of each one to the first."""
    policies: list[str] = summary["policies"]
    head = "".join(f"<th>{escape(policy)}</th>" for policy in policies)
    head += "".join(f"<th>{escape(policy)} − {escape(policies[0])}</th>" for policy in policies[1:])
    rows = []
    for metric in shown_metrics(summary["comparison"]):
        entry = summary["comparison"][metric.key]
        cells = [f"<td>{escape(shown_cell(metric, entry.get(policy)))}</td>" for policy in policies]
        cells += [_difference(metric, summary, policy) for policy in policies[1:]]
        rows.append(f"<tr><th>{metric.words}</th>{''.join(cells)}</tr>\n")
    return (
        f"<table><thead><tr><th></th>{head}</tr></thead>\n<tbody>{''.join(rows)}</tbody></table>"
        f"<small>{_NOTE}</small>\n"
    )


def _difference(metric: MetricWords, summary: Mapping[str, Any], policy: str) -> str:
    difference = (summary["comparison"][metric.key].get(policy) or {}).get("difference")
    if difference is None:
        return "<td>-</td>"
    mark = _mark(effect(metric, summary["comparison"], summary["policies"][0], policy))
    return f"<td>{escape(shown_difference(metric, difference))}{mark}</td>"


def _mark(found: Effect | None) -> str:
    return "" if found is None else f" <b class='{found.value}'>{found.value}</b>"


def group_table(policies: Sequence[str], groups: GroupComparisons, name: str) -> str:
    """Return waits, slowdowns and jobs that never started by width or by queue: means over the seeds."""
    head = "".join(f"<th>{words_of(key).words}</th>" for key in _OF_GROUPS)
    rows = []
    for group, comparison in groups.items():
        for policy in policies:
            if policy in comparison["jobs"]:
                cells = "".join(_group_cell(words_of(key), comparison, policies[0], policy) for key in _OF_GROUPS)
                rows.append(f"<tr><th>{escape(group)}</th><td class='text'>{escape(policy)}</td>{cells}</tr>\n")
    return (
        f"<table class='groups'><thead><tr><th>{name}</th><th class='text'>Policy</th>{head}</tr></thead>\n"
        f"<tbody>{''.join(rows)}</tbody></table>\n"
    )


def _group_cell(metric: MetricWords, comparison: Mapping[str, Any], baseline: str, policy: str) -> str:
    entry = comparison[metric.key][policy]
    bound = "≥ " if entry.get("lower_bound") else ""
    mark = _mark(effect(metric, comparison, baseline, policy)) if policy != baseline else ""
    return f"<td>{bound}{escape(shown_value(entry['mean'], metric.unit))}{mark}</td>"


def change_table(changes: Sequence[InputChange]) -> str:
    """Return the numbers of skipped and changed lines by reason, and the first of these lines."""
    if not changes:
        return ""
    counts = "".join(
        f"<tr><th>{escape(entry.file)}</th><td class='text'>{'skipped' if entry.skipped else 'changed'}</td>"
        f"<td class='text'>{escape(entry.reason)}</td><td>{entry.lines:,}</td></tr>\n"
        for entry in count_changes(changes)
    )
    lines = "".join(
        f"<tr><th>{escape(change.file)}: {change.line}</th><td class='text'>{escape(change.job)}</td>"
        f"<td class='text'>{escape(change.reason)}</td><td>{escape(change.before)}</td>"
        f"<td>{escape(change.after)}</td></tr>\n"
        for change in changes[:_MOST_LINES]
    )
    more = len(changes) - _MOST_LINES
    rest = f"<small>{more:,} more lines in input-changes.csv</small>\n" if more > 0 else ""
    return (
        "<h2>Skipped and changed lines of the workload</h2>\n<table><thead><tr><th>File</th><th class='text'></th>"
        f"<th class='text'>Reason</th><th>Lines</th></tr></thead>\n<tbody>{counts}</tbody></table>\n"
        "<details><summary>The lines</summary><table><thead><tr><th>Line</th><th class='text'>Job</th>"
        f"<th class='text'>Reason</th><th>Before</th><th>After</th></tr></thead>\n<tbody>{lines}</tbody></table>"
        f"{rest}</details>\n"
    )


def worst_jobs(run: RunResult) -> str:
    """Return the jobs with the worst slowdown, those that never started first, with the last wait reason."""

    def badness(job: JobHistory) -> tuple[bool, float, int]:
        return job.start is not None, -slowdown_of(job)[0], -job.wait(run.end)

    def slowdown_of(job: JobHistory) -> tuple[float, bool]:
        return job_slowdown(job, run.end) or (0.0, False)

    def row(job: JobHistory) -> str:
        slowdown, bound = slowdown_of(job)
        seconds = MetricUnit.SECONDS
        wait = ("≥ " if job.wait_is_censored else "") + shown_value(job.wait(run.end), seconds)
        return (
            f"<tr><td class='text'>{escape(job.name)}</td><td class='text'>{escape(job.queue)}</td>"
            f"<td>{job.width}</td><td>{wait}</td>"
            f"<td>{shown_value(job.run, seconds) if job.end is not None else '-'}</td>"
            f"<td>{'≥ ' if bound else ''}{number(round(slowdown, 1)) if slowdown else '-'}</td>"
            f"<td class='text'>{'never started' if job.never_started else job.outcome.value}</td>"
            f"<td class='text'>{escape(job.why)}</td></tr>\n"
        )

    rows = "".join(row(job) for job in sorted(run.jobs, key=badness)[:_WORST])
    return (
        f"<h3>{escape(run.policy)}</h3>\n<table class='jobs'><thead><tr><th>Job</th><th class='text'>Queue</th>"
        "<th>Width</th>"
        "<th>Wait</th><th>Run time</th><th>Bounded slowdown</th><th class='text'>Outcome</th>"
        f"<th class='text'>Last wait reason</th></tr></thead>\n<tbody>{rows}</tbody></table>\n"
    )
