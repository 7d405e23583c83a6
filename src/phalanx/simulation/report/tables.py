"""Tables of the page: metrics in words, with better and worse marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from phalanx.simulation.history import JobHistory
from phalanx.simulation.metrics import job_slowdown, mean
from phalanx.simulation.report.effects import Effect, effect
from phalanx.simulation.report.metric_words import (
    MetricUnit,
    MetricWords,
    number,
    shown_cell,
    shown_metrics,
    shown_value,
    words_of,
)
from phalanx.simulation.report.never_started import width_key
from phalanx.simulation.runs import RunResult
from phalanx.simulation.workloads.changes import InputChange, count_changes

_WORST = 20
_MOST_LINES = 50
_OF_GROUPS = ("jobs", "never_started", "mean_wait_seconds", "p90_wait_seconds", "max_wait_seconds",
              "mean_bounded_slowdown")  # fmt: skip
_NOTE = (
    "± is half the width of the 95 % interval over the seeds; differences are between runs of one seed."
    " Better and worse compare with the first policy; a difference within the interval is unclear, and so is a"
    " better value of a policy under which more jobs had not started."
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
    entry = (summary["comparison"][metric.key].get(policy) or {}).get("difference")
    if entry is None:
        return "<td>-</td>"
    text = shown_value(entry["mean"], metric.unit, signed=True)
    if entry["low"] is not None and entry["low"] != entry["high"]:
        text += f" ± {shown_value((entry['high'] - entry['low']) / 2, metric.unit)}"
    return f"<td>{escape(text)}{_mark(effect(metric, summary['comparison'], summary['policies'][0], policy))}</td>"


def _mark(found: Effect | None) -> str:
    return "" if found is None else f" <b class='{found.value}'>{found.value}</b>"


def group_table(summary: Mapping[str, Any], runs: Sequence[RunResult], name: str, *, widths: bool) -> str:
    """Return waits, slowdowns and jobs that never started by width or by queue: means over the seeds."""
    policies: list[str] = summary["policies"]
    entries: dict[str, dict[str, list[dict[str, float | int]]]] = {}
    for run in runs:
        for group, metrics in (run.by_width if widths else run.by_queue).items():
            entries.setdefault(group, {}).setdefault(run.policy, []).append(metrics)
    groups = sorted(entries, key=width_key) if widths else sorted(entries)
    head = "".join(f"<th>{words_of(key).words}</th>" for key in _OF_GROUPS)
    rows = []
    for group in groups:
        base = entries[group].get(policies[0])
        for policy in policies:
            found = entries[group].get(policy)
            if found is None:
                continue
            cells = "".join(_group_cell(key, found, base if policy != policies[0] else None) for key in _OF_GROUPS)
            rows.append(f"<tr><th>{escape(group)}</th><td class='text'>{escape(policy)}</td>{cells}</tr>\n")
    return (
        f"<table class='groups'><thead><tr><th>{name}</th><th class='text'>Policy</th>{head}</tr></thead>\n"
        f"<tbody>{''.join(rows)}</tbody></table>\n"
    )


def _group_cell(
    key: str, found: Sequence[Mapping[str, float | int]], base: Sequence[Mapping[str, float | int]] | None
) -> str:
    metric = words_of(key)
    value, censored = _mean_of(found, key), _mean_of(found, "censored_waits")
    bound = "≥ " if censored and key not in ("jobs", "never_started") else ""
    mark = ""
    if base is not None and key != "jobs":
        entries = {"b": _entry(base, key), "p": _entry(found, key)}
        waits = {"b": _entry(base, "censored_waits"), "p": _entry(found, "censored_waits")}
        mark = _mark(effect(metric, {key: entries, "censored_waits": waits}, "b", "p"))
    return f"<td>{bound}{escape(shown_value(value, metric.unit))}{mark}</td>"


def _entry(metrics: Sequence[Mapping[str, float | int]], key: str) -> dict[str, object]:
    censored = _mean_of(metrics, "censored_waits") > 0 and key != "never_started"
    return {"mean": _mean_of(metrics, key), "lower_bound": censored}


def _mean_of(metrics: Sequence[Mapping[str, float | int]], key: str) -> float:
    return mean([float(entry[key]) for entry in metrics])


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
