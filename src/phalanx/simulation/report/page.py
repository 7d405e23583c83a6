"""Report as one HTML page without external resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import unified_diff
from html import escape
from typing import Any

from phalanx.simulation.history import JobHistory
from phalanx.simulation.metrics import (
    LIMITS,
    LONGER,
    NO_LIMIT,
    bounded_slowdown,
    limit_class,
    mean,
    width_class,
)
from phalanx.simulation.report.charts import Points, lines, spreads
from phalanx.simulation.report.grids import gantt, heat_map
from phalanx.simulation.report.metric_words import METRICS, number, shown_cell
from phalanx.simulation.report.promises import promise_section
from phalanx.simulation.runs import NamedPolicy, RunResult
from phalanx.simulation.timeline import TimelineSample
from phalanx.simulation.workloads.changes import InputChange

_WORST = 20
# Charts of more queues than this are unreadable.
_MOST_QUEUES = 8
_STYLE = """
:root{color-scheme:light dark;--ink:#111;--soft:#555;--line:#e5e7eb;--paper:#fff;--warn:#fef3c7}
@media (prefers-color-scheme:dark){
:root{--ink:#e5e7eb;--soft:#9ca3af;--line:#374151;--paper:#111827;--warn:#78350f}}
body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:900px;padding:0 1rem;color:var(--ink);
background:var(--paper)}
table{border-collapse:collapse;margin:.5rem 0 1.5rem;width:100%}th,td{padding:.25rem .6rem;text-align:right}
th:first-child,td.text{text-align:left}tr{border-bottom:1px solid var(--line)}
thead{border-bottom:2px solid var(--ink)}code{font-size:12px;word-break:break-all}
pre{font-size:12px;overflow-x:auto;border:1px solid var(--line);padding:.6rem}
figure{margin:0 0 1.5rem}figcaption{font-weight:600}figcaption span{font-weight:400;margin-left:1rem}
figcaption i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}
svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--soft)}.grid{stroke:var(--line)}
.bar{stroke:var(--paper);stroke-width:.5}
.warning{background:var(--warn);padding:.6rem 1rem;border-left:4px solid #d97706}small{color:var(--soft)}
"""


def page(
    summary: Mapping[str, Any],
    runs: Sequence[RunResult],
    texts: Sequence[NamedPolicy],
    changes: Sequence[InputChange],
) -> str:
    """Return the page. Charts show the first seed of each policy, tables the mean over all seeds with intervals."""
    policies: list[str] = summary["policies"]
    first = [next(run for run in runs if run.policy == policy) for policy in policies]
    parts = [
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>phalanx simulate</title>"
        f"<style>{_STYLE}</style></head><body>\n<h1>Simulation</h1>\n",
        _inputs(summary),
        *_warnings(runs),
        "<h2>Policies side by side</h2>\n",
        _headlines(summary),
        "<h2>Waits and slowdowns by width</h2>\n",
        spreads("Wait in seconds: median to 99th percentile", _by_width(first, "wait_seconds")),
        spreads("Bounded slowdown: median to 99th percentile", _by_width(first, "bounded_slowdown")),
        "<h2>Waits by limit and width</h2>\n",
        *[_heat_map(run) for run in first],
        "<h2>Over time</h2>\n",
        *_over_time(first),
        "<h2>Shares against fair shares</h2>\n",
        *[_shares(run) for run in first],
        *promise_section(summary, first),
        "<h2>One hour, node by node</h2>\n",
        *[_hour(run) for run in first],
        "<h2>Jobs with the worst slowdown</h2>\n",
        *[_worst(run) for run in first],
        *_differences(texts),
        "</body></html>\n",
    ]
    return "".join(parts)


def _inputs(summary: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td class='text'>{escape(input_file['role'])}</td><td class='text'>{escape(input_file['file'])}</td>"
        f"<td class='text'><code>{input_file['sha256']}</code></td></tr>\n"
        for input_file in summary["inputs"]
    )
    until = summary["until_seconds"]
    seeds = ", ".join(map(str, summary["seeds"]))
    end = "to the end" if until is None else f"until {until} s"
    versions = ", ".join(f"{name} {number}" for name, number in summary["versions"].items())
    return f"<p>Seeds {seeds}; {end}. Made with {escape(versions)}.</p>\n<table>{rows}</table>\n"


def _warnings(runs: Sequence[RunResult]) -> list[str]:
    warnings = []
    for run in runs:
        run_name = f"{escape(run.policy)}, seed {run.seed}"
        if run.metrics["saturated"]:
            warnings.append(
                f"<p class='warning'>{run_name}: the queue was still growing at the end. More jobs arrived than the"
                " cluster can run, so waits depend more on the simulated time than on the policy.</p>\n"
            )
        if run.failures:
            warnings.append(f"<p class='warning'>{run_name}: the scheduler failed: {escape(run.failures[0])}</p>\n")
    return warnings


def _headlines(summary: Mapping[str, Any]) -> str:
    policies: list[str] = summary["policies"]
    head = "".join(f"<th>{escape(policy)}</th>" for policy in policies)
    head += "".join(f"<th>{escape(policy)} − {escape(policies[0])}</th>" for policy in policies[1:])
    rows = []
    for metric in METRICS:
        entry = summary["comparison"].get(metric.key)
        if entry:
            cells = [shown_cell(metric, entry.get(policy)) for policy in policies]
            cells += [shown_cell(metric, (entry.get(policy) or {}).get("difference")) for policy in policies[1:]]
            rows.append(
                f"<tr><th>{metric.words}</th>{''.join(f'<td>{escape(text)}</td>' for text in cells)}</tr>\n"
            )
    note = "± is half the width of the 95 % interval over the seeds; differences are between runs of one seed."
    return (
        f"<table><thead><tr><th></th>{head}</tr></thead>\n<tbody>{''.join(rows)}</tbody></table>"
        f"<small>{note}</small>\n"
    )


def _by_width(runs: Sequence[RunResult], metric: str) -> list[tuple[str, list[tuple[str, float, float, float]]]]:
    widths = sorted({width for run in runs for width in run.by_width}, key=lambda width: int(width.split("-")[-1]))
    groups = []
    for width in widths:
        bars = []
        for run in runs:
            entry = run.by_width.get(width)
            if entry is not None:
                p50, p90 = float(entry[f"p50_{metric}"]), float(entry[f"p90_{metric}"])
                bars.append((run.policy, p50, p90, float(entry[f"p99_{metric}"])))
        groups.append((width, bars))
    return groups


def _points(run: RunResult, value: Callable[[TimelineSample], float]) -> Points:
    return [((sample.time - run.start) / 3600, value(sample)) for sample in run.samples]


def _over_time(runs: Sequence[RunResult]) -> list[str]:
    main = str(runs[0].metrics["utilisation_resource"])
    charts = [
        lines("Waiting jobs", [(run.policy, _points(run, lambda sample: sample.waiting)) for run in runs]),
        lines(
            f"Used part of {main}",
            [(run.policy, _points(run, lambda sample: 100 * sample.used.get(main, 0.0))) for run in runs],
            "%",
        ),
    ]
    fragmentation = [
        (
            run.policy,
            [
                ((sample.time - run.start) / 3600, 100 * sample.fragmentation)
                for sample in run.samples
                if sample.fragmentation is not None
            ],
        )
        for run in runs
        if any(sample.fragmentation is not None for sample in run.samples)
    ]
    if fragmentation:
        charts.append(lines("Fragmented part of idle GPUs (FGD)", fragmentation, "%"))
    return charts


def _shares(run: RunResult) -> str:
    queues = sorted({queue for sample in run.samples for queue in sample.held | sample.fair})
    totals = {queue: sum(sample.held.get(queue, 0) for sample in run.samples) for queue in queues}
    shown = sorted(queues, key=lambda queue: -totals[queue])[:_MOST_QUEUES]
    series, dashed = [], []
    for queue in shown:
        series.append((queue, _points(run, lambda sample, queue=queue: sample.held.get(queue, 0))))  # type: ignore[misc]
        dashed.append(f"{queue} (fair)")
        series.append((dashed[-1], _points(run, lambda sample, queue=queue: sample.fair.get(queue, 0))))  # type: ignore[misc]
    resource = run.metrics["utilisation_resource"]
    return lines(f"{run.policy}: {resource} allocated by queue, and fair shares", series, dashed=dashed)


def _heat_map(run: RunResult) -> str:
    waits_of: dict[tuple[str, str], list[int]] = {}
    for job in run.jobs:
        waits_of.setdefault((limit_class(job), width_class(job)), []).append(job.wait(run.end))
    names = [name for name, _ in LIMITS] + [LONGER, NO_LIMIT]
    rows = [name for name in names if any(row == name for row, _ in waits_of)]
    columns = sorted({column for _, column in waits_of}, key=lambda width: int(width.split("-")[-1]))
    cells = {cell: (mean(waits), len(waits)) for cell, waits in waits_of.items()}
    return heat_map(f"{run.policy}: mean wait in seconds, by limit (down) and width (across)", rows, columns, cells)


def _hour(run: RunResult) -> str:
    hour, since = run.gantt, run.gantt.begin - run.start
    shown = len({bar.node for bar in hour.bars})
    note = f"; {shown} of {hour.nodes} nodes" if shown < hour.nodes else ""
    return gantt(f"{run.policy}: the hour from {since / 3600:.1f} h on{note}", hour, run.start)


def _differences(texts: Sequence[NamedPolicy]) -> list[str]:
    """Return the differences of each policy file to the first one."""
    base, parts = texts[0], list[str]()
    for policy in texts[1:]:
        lines = unified_diff(
            base.text.splitlines(), policy.text.splitlines(), base.name, policy.name, lineterm="", n=1
        )
        diff = "\n".join(lines) or "no difference"
        parts.append(f"<h3>{escape(policy.name)} against {escape(base.name)}</h3>\n<pre>{escape(diff)}</pre>\n")
    return ["<h2>Differences between the policies</h2>\n", *parts] if parts else []


def _worst(run: RunResult) -> str:
    def badness(job: JobHistory) -> tuple[bool, float, int]:
        wait = job.wait(run.end)
        return job.start is not None, -bounded_slowdown(wait, job.run), -wait

    rows = "".join(
        f"<tr><td class='text'>{escape(job.name)}</td><td class='text'>{escape(job.queue)}</td><td>{job.width}</td>"
        f"<td>{number(job.wait(run.end))}</td><td>{number(job.run)}</td>"
        f"<td>{number(bounded_slowdown(job.wait(run.end), job.run))}</td><td class='text'>{job.outcome.value}</td>"
        f"<td class='text'>{escape(job.why)}</td></tr>\n"
        for job in sorted(run.jobs, key=badness)[:_WORST]
    )
    return (
        f"<h3>{escape(run.policy)}</h3>\n<table><thead><tr><th>job</th><th>queue</th><th>width</th><th>wait s</th>"
        f"<th>run s</th><th>slowdown</th><th>outcome</th><th>last verdict</th></tr></thead>\n{rows}</table>\n"
    )
