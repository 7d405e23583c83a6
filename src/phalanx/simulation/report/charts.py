"""Charts as SVG text: lines over time, bars of parts, and spreads on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise, zip_longest
from math import log10

from phalanx.simulation.report.axes import round_marks, short, shown_time, time_marks

COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
WIDTH, _HEIGHT = 860, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 44
_LETTER = 6.5  # width of a letter of a label

Points = Sequence[tuple[float, float]]


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def lines(
    title: str,
    series: Sequence[tuple[str, Points]],
    across: str,
    up: str,
    *,
    unit: str = "",
    dashed: Sequence[str] = (),
) -> str:
    """Return a line chart. `series` are (name, points (seconds, value)), each value lasts until the next point.

    `across` and `up` name the axes. Series named in `dashed` are dashed, in the colour of the previous one."""
    xs = [x for _, points in series for x, _ in points]
    ys = [y for _, points in series for _, y in points]
    if not xs:
        return ""
    right = max(max(xs), 1.0)
    # No finer than whole numbers and percents: a chart of zeros has no smaller scale.
    marks = round_marks(max(*ys, 1.0), whole=True)
    top = marks[-1]

    def at(x: float, y: float) -> str:
        column = LEFT + max(x, 0.0) / right * (WIDTH - LEFT - RIGHT)
        return f"{column:.1f},{_HEIGHT - BOTTOM - y / top * (_HEIGHT - TOP - BOTTOM):.1f}"

    polylines, labels, index = [], [], -1
    for name, points in series:
        dash = name in dashed
        index += 0 if dash else 1
        style = " stroke-dasharray='4 3'" if dash else ""
        steps = [at(x, y) for (_, y), (x, _) in pairwise(points)]
        path = " ".join(
            point for pair in zip_longest((at(x, y) for x, y in points), steps) for point in pair if point
        )
        polylines.append(
            f"<polyline fill='none' stroke='{colour(index)}' stroke-width='1.6'{style} points='{path}'/>"
        )
        patch = f"class='dashed' style='color:{colour(index)}'" if dash else f"style='background:{colour(index)}'"
        labels.append(f"<span><i {patch}></i>{escape(name)}</span>")
    grid = [_level(mark / top, f"{short(mark)}{unit}", _HEIGHT) for mark in marks]
    for seconds in time_marks(right):
        column = LEFT + seconds / right * (WIDTH - LEFT - RIGHT)
        grid.append(
            f"<text x='{column:.1f}' y='{_HEIGHT - BOTTOM + 15}' text-anchor='middle'>{shown_time(seconds)}</text>"
        )
    return figure(title, "".join(grid) + "".join(polylines), _HEIGHT, labels, across, up)


def bars(
    title: str,
    groups: Sequence[str],
    series: Sequence[tuple[str, Sequence[tuple[float, str]]]],
    across: str,
    up: str,
) -> str:
    """Return a bar chart in percent. `series` are (name, one (percent, text) per group)."""
    highest = max((percent for _, values in series for percent, _ in values), default=0.0)
    marks = round_marks(max(highest, 1.0), whole=True)
    group = (WIDTH - LEFT - RIGHT) / max(1, len(groups))
    wide = min(72.0, (group - 8) / max(1, len(series)))
    body = [_level(mark / marks[-1], f"{short(mark)} %", _HEIGHT) for mark in marks]
    for x, name in enumerate(groups):
        middle = LEFT + (x + 0.5) * group
        body.append(
            f"<text x='{middle:.1f}' y='{_HEIGHT - BOTTOM + 15}' text-anchor='middle'>{escape(name)}</text>"
        )
        for index, (label, values) in enumerate(series):
            percent, text = values[x]
            tall = percent / marks[-1] * (_HEIGHT - TOP - BOTTOM)
            left = middle + (index - len(series) / 2) * wide
            bar_top = _HEIGHT - BOTTOM - tall
            # The labels of narrow bars would cover each other; the tooltip has the whole text.
            label_text = text if len(text) * _LETTER <= wide else text.partition(" ")[0]
            middle_of_bar = left + wide / 2 - 1
            shown = (
                f"<text x='{middle_of_bar:.1f}' y='{bar_top - 3:.1f}' text-anchor='middle'>"
                f"{escape(label_text)}</text>"
            )
            body.append(
                f"<g><title>{escape(label)}: {escape(text)}</title><rect x='{left:.1f}' y='{bar_top:.1f}'"
                f" width='{max(1.0, wide - 2):.1f}' height='{max(tall, 1.0):.1f}' fill='{colour(index)}'/>"
                f"{shown if percent else ''}</g>"
            )
    return figure(title, "".join(body), _HEIGHT, legend([label for label, _ in series]), across, up)


def spreads(
    title: str,
    groups: Sequence[tuple[str, Sequence[tuple[str, float, float, float]]]],
    marks: Sequence[int],
    shown: Callable[[float], str],
    across: str,
    up: str,
) -> str:
    """Return a bar chart on a logarithmic axis. `groups` are (name, bars (series, p50, p90, p99)).

    A bar reaches from the median to the 99th percentile, with a mark at the 90th. `marks` are those of the axis,
    and `shown` formats them and the values."""
    decades = log10(marks[-1])
    height = TOP + BOTTOM + sum(12 * len(group_bars) + 10 for _, group_bars in groups)
    left_end = LEFT + 24

    def at(value: float) -> float:
        return left_end + min(1.0, log10(max(value, 1.0)) / decades) * (WIDTH - left_end - RIGHT - 20)

    body, names, y = [], dict[str, str](), float(TOP)
    for mark in marks:
        x = at(mark)
        body.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{TOP}' y2='{height - BOTTOM}' class='grid'/>")
        body.append(f"<text x='{x:.1f}' y='{height - BOTTOM + 15}' text-anchor='middle'>{shown(mark)}</text>")
    for name, group_bars in groups:
        middle = y + 6 * len(group_bars) + 4
        body.append(f"<text x='{left_end - 8}' y='{middle:.1f}' text-anchor='end'>{escape(name)}</text>")
        for index, (series, p50, p90, p99) in enumerate(group_bars):
            names[series] = colour(index)
            length = max(2.0, at(p99) - at(p50))
            tooltip = f"{series}: median {shown(p50)}, 90 % at most {shown(p90)}, 99 % at most {shown(p99)}"
            body.append(
                f"<rect x='{at(p50):.1f}' y='{y:.1f}' width='{length:.1f}' height='8' fill='{colour(index)}'"
                f" opacity='.55'><title>{escape(tooltip)}</title></rect>"
                f"<rect x='{at(p90) - 1:.1f}' y='{y:.1f}' width='2' height='8' fill='{colour(index)}'/>"
            )
            y += 12
        y += 10
    labels = [f"<span><i style='background:{shade}'></i>{escape(name)}</span>" for name, shade in names.items()]
    return figure(title, "".join(body), round(height), labels, across, up)


def _level(part: float, text: str, height: int) -> str:
    """Return a horizontal grid line at a part of the chart's height, with its mark."""
    y = height - BOTTOM - part * (height - TOP - BOTTOM)
    return (
        f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y:.1f}' y2='{y:.1f}' class='grid'/>"
        f"<text x='{LEFT - 6}' y='{y + 4:.1f}' text-anchor='end'>{text}</text>"
    )


def legend(names: Sequence[str]) -> list[str]:
    """Return a colour patch with the name, for each name in order."""
    return [
        f"<span><i style='background:{colour(index)}'></i>{escape(name)}</span>" for index, name in enumerate(names)
    ]


def figure(title: str, body: str, height: int, labels: Sequence[str], across: str = "", up: str = "") -> str:
    """Return a figure; `labels` explain the colours, `across` and `up` name the axes."""
    axes = ""
    if across:
        middle = (LEFT + WIDTH - RIGHT) / 2
        axes += f"<text x='{middle:.1f}' y='{height - 8}' text-anchor='middle' class='axis'>{escape(across)}</text>"
    if up:
        middle = (TOP + height - BOTTOM) / 2
        axes += (
            f"<text transform='translate(13 {middle:.1f}) rotate(-90)' text-anchor='middle' class='axis'>"
            f"{escape(up)}</text>"
        )
    return (
        f"<figure><figcaption>{escape(title)} {''.join(labels)}</figcaption>"
        f"<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{escape(title, quote=True)}'>"
        f"{body}{axes}</svg>"
        "</figure>\n"
    )
