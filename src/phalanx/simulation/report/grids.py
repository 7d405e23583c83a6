"""Charts of cells and bars as SVG text: a heat map, a histogram, a Gantt chart by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10

from phalanx.simulation.gantt import HOUR, GanttHour
from phalanx.simulation.report.axes import short, shown_time
from phalanx.simulation.report.charts import BOTTOM, LEFT, RIGHT, TOP, WIDTH, colour, figure, legend

_CELL = 26
_LANE = 9


def heat_map(
    title: str,
    rows: Sequence[tuple[str, str]],
    columns: Sequence[str],
    cells: Mapping[tuple[str, str], tuple[float, int]],
) -> str:
    """Return a heat map. `rows` are (key, words), `cells` are (row key, column) -> (value, count); darker is more,
    on a logarithmic scale."""
    highest = max((value for value, _ in cells.values()), default=1.0)
    across = min(90.0, (WIDTH - LEFT - 60 - RIGHT) / max(1, len(columns)))
    body = []
    for x, column in enumerate(columns):
        middle = LEFT + 60 + (x + 0.5) * across
        body.append(f"<text x='{middle:.1f}' y='{TOP + 6}' text-anchor='middle'>{escape(column)}</text>")
    for y, (row, words) in enumerate(rows):
        top = TOP + 14 + y * _CELL
        body.append(f"<text x='{LEFT + 52}' y='{top + 17}' text-anchor='end'>{escape(words)}</text>")
        for x, column in enumerate(columns):
            entry = cells.get((row, column))
            if entry is None:
                continue
            value, count = entry
            shade = log10(1 + value) / log10(1 + highest) if highest else 0.0
            left = LEFT + 60 + x * across
            middle = left + across / 2 - 1
            tooltip = f"limit {escape(words)}, width {escape(column)}: {shown_time(value)}, {count} jobs"
            body.append(
                f"<g><title>{tooltip}</title><rect x='{left:.1f}' y='{top}' width='{across - 2:.1f}'"
                f" height='{_CELL - 2}' fill='#dc2626' fill-opacity='{0.06 + 0.64 * shade:.2f}'/>"
                f"<text x='{middle:.1f}' y='{top + 16}' text-anchor='middle'>{shown_time(value)}</text></g>"
            )
    return figure(title, "".join(body), TOP + 24 + len(rows) * _CELL, [])


def histogram(
    title: str, bins: Sequence[str], series: Sequence[tuple[str, Sequence[int]]], across: str, up: str
) -> str:
    """Return a histogram with a group of bars per bin, and a bar per series. `across` and `up` name the axes."""
    height, highest = 220, max((count for _, counts in series for count in counts), default=0)
    group = (WIDTH - LEFT - RIGHT) / max(1, len(bins))
    wide = (group - 8) / max(1, len(series))
    body = []
    for x, name in enumerate(bins):
        left = LEFT + x * group
        body.append(
            f"<text x='{left + group / 2:.1f}' y='{height - BOTTOM + 15}' text-anchor='middle'>"
            f"{escape(name)}</text>"
        )
        for index, (label, counts) in enumerate(series):
            tall = counts[x] / highest * (height - TOP - BOTTOM - 12) if highest else 0.0
            if not counts[x]:
                continue
            top, at = height - BOTTOM - tall, left + 4 + index * wide
            middle = at + wide / 2
            body.append(
                f"<g><title>{escape(label)}: {counts[x]}</title><rect x='{at:.1f}' y='{top:.1f}'"
                f" width='{max(1.0, wide - 1):.1f}' height='{tall:.1f}' fill='{colour(index)}'/>"
                f"<text x='{middle:.1f}' y='{top - 3:.1f}' text-anchor='middle'>{short(counts[x])}</text></g>"
            )
    base = height - BOTTOM
    body.append(f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{base}' y2='{base}' class='grid'/>")
    return figure(title, "".join(body), height, legend([label for label, _ in series]), across, up)


def gantt(title: str, hour: GanttHour, start: int) -> str:
    """Return a Gantt chart with one row per node, and a lane per concurrent bar. The colour is that of the
    queue, or of the job if there is only one queue."""
    if not hour.bars:
        return ""
    queues = sorted({bar.queue for bar in hour.bars})
    jobs = {job: index for index, job in enumerate(dict.fromkeys(bar.job for bar in hour.bars))}
    body, top = [], float(TOP)
    for node in dict.fromkeys(bar.node for bar in hour.bars):
        lanes: list[int] = []
        first = top
        for bar in hour.bars:
            if bar.node != node:
                continue
            lane = next((index for index, end in enumerate(lanes) if end <= bar.begin), len(lanes))
            lanes[lane : lane + 1] = [bar.end]
            left, right = _across(max(bar.begin, hour.begin) - hour.begin), _across(bar.end - hour.begin)
            tooltip = f"{bar.job}: {bar.pods} pod(s) on {node}, from {bar.begin - start} s to {bar.end - start} s"
            shade = colour(queues.index(bar.queue) if len(queues) > 1 else jobs[bar.job])
            body.append(
                f"<rect x='{left:.1f}' y='{top + lane * _LANE:.1f}' width='{max(1.0, right - left):.1f}'"
                f" height='{_LANE - 1}' fill='{shade}' fill-opacity='.7' class='bar'>"
                f"<title>{escape(tooltip)}</title></rect>"
            )
        top += max(1, len(lanes)) * _LANE + 3
        body.append(
            f"<text x='{LEFT + 34}' y='{(first + top) / 2 + 2:.1f}' text-anchor='end'>{escape(node[-14:])}</text>"
            f"<line x1='{LEFT + 40}' x2='{WIDTH - RIGHT}' y1='{top - 1.5:.1f}' y2='{top - 1.5:.1f}' class='grid'/>"
        )
    for minutes in range(0, 61, 10):
        at, anchor = _across(minutes * 60), "middle" if minutes < 60 else "end"
        body.append(f"<text x='{at:.1f}' y='{top + 14:.1f}' text-anchor='{anchor}'>{minutes} min</text>")
    return figure(title, "".join(body), round(top + 22), legend(queues) if len(queues) > 1 else [])


def _across(seconds: int) -> float:
    return LEFT + 40 + min(1.0, seconds / HOUR) * (WIDTH - LEFT - 40 - RIGHT)
