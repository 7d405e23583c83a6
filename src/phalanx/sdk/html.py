"""HTML of jobs, tables and verdicts in notebooks. Every text from the cluster is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.reports.jobs.entries import JobEntry
    from phalanx.reports.why_answer import WhyAnswer

_COLOURS = {
    "Running": "#2e7d32",
    "Completed": "#1565c0",
    "Starting": "#00838f",
    "Failed": "#c62828",
    "Cancelled": "#c62828",
    "Suspended": "#5e35b1",
}
_WAITING = "#ef6c00"


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], hidden: int = 0) -> str:
    """Return a table with a row per mapping; `hidden` is the number of rows that are not in it."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(as_text(row.get(column)))}</td>" for column in columns) + "</tr>"
        for row in rows
    )
    more = f"<p>and {hidden} more rows</p>" if hidden else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def as_text(value: Any) -> str:
    """Return the text of a cell."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(as_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}={as_text(entry)}" for key, entry in value.items())
    return str(value)


def job(entry: JobEntry, start: str = "") -> str:
    """Return a job: its name, a bar of its running and succeeded pods, its reason, its start, and commands."""
    colour = _COLOURS.get(str(entry.state), _WAITING)
    done = entry.running + entry.succeeded
    percent = round(100 * min(1.0, done / entry.total)) if entry.total else 0
    lines = [
        f"<b>{escape(entry.target)}</b> in {escape(entry.namespace)}: "
        f'<span style="color:{colour}">{escape(str(entry.state))}</span>',
        f'<div style="background:#ddd;width:240px;height:8px"><div style="background:{colour};'
        f'width:{percent}%;height:8px"></div></div>',
        f"{entry.running} running, {entry.succeeded} succeeded, {entry.failed} failed of {entry.total} pods "
        f"(minimum {entry.minimum})",
    ]
    if entry.reason:
        lines.append(escape(f"{entry.reason}: {entry.message}" if entry.message else entry.reason))
    if start:
        lines.append(escape(start))
    lines.append(f"<code>phalanx why {escape(entry.target)} -n {escape(entry.namespace)}</code>")
    return "<br>".join(lines)


def explanation(answer: WhyAnswer) -> str:
    """Return a verdict: state, message, nodes per reason, and the fix."""
    lines = [f"<b>{escape(answer.name)}</b>: {escape(str(answer.state))}", escape(answer.message)]
    if answer.nodes:
        rows = [{"nodes": part.count, "reason": part.reason} for part in answer.nodes]
        lines.append(table(("nodes", "reason"), rows))
    if answer.change:
        lines.append(f"<b>Fix:</b> {escape(answer.change)}")
    return "<br>".join(lines)
