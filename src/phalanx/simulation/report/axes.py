"""Axes of charts: round values for their marks, with units that people read."""

from __future__ import annotations

from math import floor, log10

from phalanx.model.text.moments import shown_span

_SPANS = (
    1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 2 * 86_400, 7 * 86_400,
    14 * 86_400, 30 * 86_400, 60 * 86_400, 180 * 86_400, 365 * 86_400,
)  # fmt: skip
# Marks of a logarithmic axis of durations.
_DECADES_OF_TIME = (1, 10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)


def short(value: float) -> str:
    """Format a number with few digits: 1.2k, 3.4M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def round_marks(top: float, most: int = 5, *, whole: bool = False) -> list[float]:
    """Return at most `most` + 1 marks from 0 on, in steps of 1, 2 or 5 times a power of ten.

    The last one is not below `top`. `whole` marks are whole numbers."""
    least = max(top, 1e-9) / most
    power = 10.0 ** floor(log10(least))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.9999)
    if whole:
        step = max(1.0, step)
    count = int(-(-top // step)) or 1
    return [round(step * index, 12) for index in range(count + 1)]


def time_marks(length: float, most: int = 8) -> list[int]:
    """Return marks in seconds from 0 to at most `length`, at most `most` + 1, in steps of whole units of time."""
    step = next((span for span in _SPANS if span * most >= length), _SPANS[-1])
    while step * most < length:
        step *= 2
    return list(range(0, int(length) + 1, step))


def log_time_marks(top: float) -> list[int]:
    """Return marks in seconds of a logarithmic axis from 1 s on; the last one is not below `top`."""
    above = next((index for index, mark in enumerate(_DECADES_OF_TIME) if mark >= top), len(_DECADES_OF_TIME) - 1)
    return list(_DECADES_OF_TIME[: max(above, 1) + 1])


def log_marks(top: float) -> list[int]:
    """Return the marks 1, 2, 5, 10, ... of a logarithmic axis; the last one is not below `top`."""
    marks = [1]
    while marks[-1] < max(top, 10):
        first_digit = int(str(marks[-1])[0])
        marks.append(marks[-1] * 5 // 2 if first_digit == 2 else marks[-1] * 2)
    return marks


def shown_time(seconds: float) -> str:
    """Return a mark of a time axis: `0`, `30 min`, `2 d`."""
    return shown_span(round(seconds)) if seconds else "0"
