"""Charts as SVG text: lines over time and bars on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise, zip_longest
from math import log10

COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
WIDTH, _HEIGHT = 860, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 28

Points = Sequence[tuple[float, float]]


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def short(value: float) -> str:
    """Format a number with few digits: 1.2k, 3.4M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def lines(title: str, series: Sequence[tuple[str, Points]], unit: str = "", dashed: Sequence[str] = ()) -> str:
    """Return a line chart. `series` are (name, points (hours, value)), each value lasts until the next point.

    Series named in `dashed` are dashed, in the colour of the previous one."""
    xs = [x for _, points in series for x, _ in points]
    ys = [y for _, points in series for _, y in points]
    if not xs:
        return ""
    left, right = min(xs), max(max(xs), min(xs) + 1e-9)
    top = max(max(ys), 1e-9)

    def at(x: float, y: float) -> str:
        across = LEFT + (x - left) / (right - left) * (WIDTH - LEFT - RIGHT)
        return f"{across:.1f},{_HEIGHT - BOTTOM - y / top * (_HEIGHT - TOP - BOTTOM):.1f}"

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
            f"<polyline fill='none' stroke='{colour(index)}' stroke-width='1.4'{style} points='{path}'/>"
        )
        labels.append(f"<span><i style='background:{colour(index)}'></i>{escape(name)}</span>")
    grid = []
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        height = _HEIGHT - BOTTOM - part * (_HEIGHT - TOP - BOTTOM)
        grid.append(
            f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{height:.1f}' y2='{height:.1f}' class='grid'/>"
            f"<text x='{LEFT - 6}' y='{height + 4:.1f}' text-anchor='end'>{short(top * part)}{unit}</text>"
        )
        across = LEFT + part * (WIDTH - LEFT - RIGHT)
        hours = left + part * (right - left)
        grid.append(f"<text x='{across:.1f}' y='{_HEIGHT - 8}' text-anchor='middle'>{short(hours)} h</text>")
    return figure(title, "".join(grid) + "".join(polylines), _HEIGHT, labels)


def spreads(title: str, groups: Sequence[tuple[str, Sequence[tuple[str, float, float, float]]]]) -> str:
    """Return a bar chart on a logarithmic axis from 1. `groups` are (name, bars (series, p50, p90, p99)).

    A bar reaches from the median to the 99th percentile, with a mark at the 90th."""
    highest = max((bar[3] for _, bars in groups for bar in bars), default=1.0)
    decades = max(1.0, log10(max(highest, 10.0)))
    height = TOP + BOTTOM + sum(12 * len(bars) + 10 for _, bars in groups)

    def at(value: float) -> float:
        return LEFT + 40 + log10(max(value, 1.0)) / decades * (WIDTH - LEFT - RIGHT - 40)

    body, names, y = [], dict[str, str](), float(TOP)
    for decade in range(int(decades) + 1):
        x = at(10.0**decade)
        body.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{TOP}' y2='{height - BOTTOM}' class='grid'/>")
        body.append(f"<text x='{x:.1f}' y='{height - 8}' text-anchor='middle'>{short(10.0**decade)}</text>")
    for name, bars in groups:
        middle = y + 6 * len(bars) + 4
        body.append(f"<text x='{LEFT + 32}' y='{middle:.1f}' text-anchor='end'>{escape(name)}</text>")
        for index, (series, p50, p90, p99) in enumerate(bars):
            names[series] = colour(index)
            length = max(1.0, at(p99) - at(p50))
            body.append(
                f"<rect x='{at(p50):.1f}' y='{y:.1f}' width='{length:.1f}' height='8' fill='{colour(index)}'"
                f" opacity='.55'><title>{escape(series)}: p50 {short(p50)}, p90 {short(p90)}, p99 {short(p99)}"
                f"</title></rect><rect x='{at(p90) - 1:.1f}' y='{y:.1f}' width='2' height='8'"
                f" fill='{colour(index)}'/>"
            )
            y += 12
        y += 10
    labels = [f"<span><i style='background:{shade}'></i>{escape(name)}</span>" for name, shade in names.items()]
    return figure(title, "".join(body), round(height), labels)


def legend(names: Sequence[str]) -> list[str]:
    """Return a colour patch with the name, for each name in order."""
    return [
        f"<span><i style='background:{colour(index)}'></i>{escape(name)}</span>" for index, name in enumerate(names)
    ]


def figure(title: str, body: str, height: int, labels: Sequence[str]) -> str:
    """Return a figure; `labels` explain the colours."""
    return (
        f"<figure><figcaption>{escape(title)} {''.join(labels)}</figcaption>"
        f"<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{escape(title, quote=True)}'>{body}</svg>"
        "</figure>\n"
    )
