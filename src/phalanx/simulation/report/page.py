"""Report as one HTML page without external resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import unified_diff
from html import escape
from typing import Any

from phalanx.model.text.moments import shown_span
from phalanx.simulation.metrics import LIMITS, LONGER, NO_LIMIT, limit_class, mean, width_class
from phalanx.simulation.report.charts import lines
from phalanx.simulation.report.grids import gantt, heat_map
from phalanx.simulation.report.group_comparison import by_queue, by_width
from phalanx.simulation.report.never_started import width_key
from phalanx.simulation.report.opening import TIME_AXIS, five_charts, points, resource_words
from phalanx.simulation.report.owner_summary import owner_sentences
from phalanx.simulation.report.promises import promise_section
from phalanx.simulation.report.tables import change_table, group_table, metric_table, worst_jobs
from phalanx.simulation.runs import NamedPolicy, RunResult
from phalanx.simulation.workloads.changes import InputChange

# Charts of more queues than this are unreadable.
_MOST_QUEUES = 8
_STYLE = """
:root{color-scheme:light dark;--ink:#111;--soft:#555;--line:#e5e7eb;--paper:#fff;--warn:#fef3c7;--good:#047857;
--bad:#b91c1c}
@media (prefers-color-scheme:dark){
:root{--ink:#e5e7eb;--soft:#9ca3af;--line:#374151;--paper:#111827;--warn:#78350f;--good:#34d399;--bad:#f87171}}
body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:960px;padding:0 1rem;color:var(--ink);
background:var(--paper)}
.owner{font-size:17px;border-left:4px solid #2563eb;padding:.2rem 1rem;margin:1rem 0}.owner p{margin:.4rem 0}
table{border-collapse:collapse;margin:.5rem 0 1.5rem;width:100%}th,td{padding:.25rem .6rem;text-align:right}
th:first-child,td.text,th.text{text-align:left}tr{border-bottom:1px solid var(--line)}
tbody th{font-weight:500}thead{border-bottom:2px solid var(--ink)}code{font-size:12px;word-break:break-all}
pre{font-size:12px;overflow-x:auto;border:1px solid var(--line);padding:.6rem}
figure{margin:0 0 1.5rem}figcaption{font-weight:600}figcaption span{font-weight:400;margin-left:1rem}
figcaption i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}
figcaption i.dashed{height:0;width:1.4em;border-top:2px dashed;vertical-align:middle}
svg{width:100%;height:auto}svg text{font-size:12px;fill:var(--soft)}svg .axis{fill:var(--ink)}
.grid{stroke:var(--line)}.bar{stroke:var(--paper);stroke-width:.5}
b.better{color:var(--good)}b.worse{color:var(--bad)}b.equal,b.unclear{font-weight:400;color:var(--soft)}
.groups b{display:block}
.groups td,.jobs td:not(.text){white-space:nowrap}b.better::before{content:"▲ "}b.worse::before{content:"▼ "}
.warning{background:var(--warn);padding:.6rem 1rem;border-left:4px solid #d97706}small{color:var(--soft)}
summary{cursor:pointer}
"""


def page(
    summary: Mapping[str, Any],
    runs: Sequence[RunResult],
    texts: Sequence[NamedPolicy],
    changes: Sequence[InputChange],
) -> str:
    """Return the page: three sentences, five charts, tables with better and worse marked, then all details.

    Charts show the first seed of each policy, tables the mean over all seeds with intervals."""
    policies: list[str] = summary["policies"]
    first = [next(run for run in runs if run.policy == policy) for policy in policies]
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in owner_sentences(summary, runs))
    seeds = f"<small>Charts show seed {first[0].seed}, tables all {len(summary['seeds'])} seeds.</small>\n"
    parts = [
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>phalanx simulate</title>"
        f"<style>{_STYLE}</style></head><body>\n<h1>Simulation: {escape(', '.join(policies))}</h1>\n",
        f"<div class='owner'>{sentences}</div>\n",
        *_warnings(runs),
        *five_charts(summary, first),
        seeds if len(summary["seeds"]) > 1 else "",
        f"<h2>{'Policies side by side' if len(policies) > 1 else 'Metrics'}</h2>\n",
        metric_table(summary),
        "<h2>Waits and slowdowns by width</h2>\n",
        group_table(policies, by_width(runs), "Width"),
        "<h2>Waits and slowdowns by queue</h2>\n",
        group_table(policies, by_queue(runs), "Queue"),
        *promise_section(summary, first),
        "<h2>Waits by limit and width</h2>\n",
        *[_heat_map(run) for run in first],
        "<h2>Shares and fair shares of queues</h2>\n",
        *[_shares(run) for run in first],
        *_fragmentation(first),
        "<h2>One hour, node by node</h2>\n",
        *[_hour(run) for run in first],
        "<h2>Jobs with the worst slowdown</h2>\n",
        *[worst_jobs(run) for run in first],
        change_table(changes),
        *_differences(texts),
        _inputs(summary),
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
    return (
        f"<h2>Inputs</h2>\n<p>Seeds {seeds}; {end}. Made with {escape(versions)}.</p>\n"
        "<table><thead><tr><th class='text'>Use</th><th class='text'>File</th><th class='text'>SHA-256</th></tr>"
        f"</thead><tbody>{rows}</tbody></table>\n"
    )


def _warnings(runs: Sequence[RunResult]) -> list[str]:
    """Return the warnings, each once for all runs that it is about."""
    saturated = [run for run in runs if run.metrics["saturated"]]
    warnings = []
    if saturated:
        warnings.append(
            f"<p class='warning'>The queue was still growing when the last jobs arrived ({_names(saturated)}). More"
            " jobs arrived than the cluster can run, so waits depend more on the simulated time than on the"
            " policy.</p>\n"
        )
    for failure in dict.fromkeys(run.failures[0] for run in runs if run.failures):
        failed = [run for run in runs if run.failures and run.failures[0] == failure]
        warnings.append(f"<p class='warning'>The scheduler failed ({_names(failed)}): {escape(failure)}</p>\n")
    return warnings


def _names(runs: Sequence[RunResult]) -> str:
    """Return the policies of runs, with their seeds."""
    seeds: dict[str, list[str]] = {}
    for run in runs:
        seeds.setdefault(run.policy, []).append(str(run.seed))
    return escape("; ".join(f"{policy}: seed {', '.join(of_policy)}" for policy, of_policy in seeds.items()))


def _fragmentation(runs: Sequence[RunResult]) -> list[str]:
    series = [
        (
            run.policy,
            [
                (sample.time - run.start, 100 * sample.fragmentation)
                for sample in run.samples
                if sample.fragmentation is not None
            ],
        )
        for run in runs
        if any(sample.fragmentation for sample in run.samples)
    ]
    if not series:
        return []
    title = "Part of idle GPUs that no job can use (FGD)"
    return ["<h2>Fragmentation</h2>\n", lines(title, series, TIME_AXIS, "part of idle GPUs", unit=" %")]


def _shares(run: RunResult) -> str:
    queues = sorted({queue for sample in run.samples for queue in sample.held | sample.fair})
    totals = {queue: sum(sample.held.get(queue, 0) for sample in run.samples) for queue in queues}
    shown = sorted(queues, key=lambda queue: -totals[queue])[:_MOST_QUEUES]
    unit = run.unit
    series, dashed = [], []
    for queue in shown:
        series.append((queue, points(run, lambda sample, queue=queue: sample.held.get(queue, 0) / unit)))  # type: ignore[misc]
        dashed.append(f"{queue} (fair)")
        series.append((dashed[-1], points(run, lambda sample, queue=queue: sample.fair.get(queue, 0) / unit)))  # type: ignore[misc]
    resource = resource_words(run)
    title = f"{run.policy}: allocated {resource} by queue, and fair shares"
    return lines(title, series, TIME_AXIS, resource, dashed=dashed)


def _heat_map(run: RunResult) -> str:
    waits_of: dict[tuple[str, str], list[int]] = {}
    for job in run.jobs:
        waits_of.setdefault((limit_class(job), width_class(job)), []).append(job.wait(run.end))
    names = [name for name, _ in LIMITS] + [LONGER, NO_LIMIT]
    rows = [name for name in names if any(row == name for row, _ in waits_of)]
    columns = sorted({column for _, column in waits_of}, key=width_key)
    cells = {cell: (mean(waits), len(waits)) for cell, waits in waits_of.items()}
    title = f"{run.policy}: mean wait by run-time limit (down) and width (across)"
    return heat_map(title, [(name, _limit_words(name)) for name in rows], columns, cells)


def _limit_words(name: str) -> str:
    """Return a class of limits in words."""
    bounds = dict(LIMITS)
    if name == NO_LIMIT:
        return "no limit"
    return f"over {shown_span(max(bounds.values()))}" if name == LONGER else f"up to {shown_span(bounds[name])}"


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
