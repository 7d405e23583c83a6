"""Durations in Go's notation and in the ``duration`` format; in nanoseconds."""

from __future__ import annotations

import re
from typing import Final

from phalanx.model.text.decoding import MAX_NUMBER
from phalanx.model.text.duration import parse_nanoseconds

#: Units by all their names; the last name can have a suffix (``days``).
_LONG_UNITS: Final = (
    (1, ("ns", "nano")),
    (10**3, ("us", "µs", "micro")),
    (10**6, ("ms", "milli")),
    (10**9, ("s", "sec")),
    (60 * 10**9, ("m", "min")),
    (3600 * 10**9, ("h", "hr", "hour")),
    (86400 * 10**9, ("d", "day")),
    (7 * 86400 * 10**9, ("w", "wk", "week")),
)
_LONG_PART: Final = re.compile(r"(\d+)\s*([A-Za-zµ]+)", re.ASCII)
_LIMIT: Final = 2**63


def go_duration(text: str) -> int | None:
    """Parse a duration such as ``1h30m`` or ``-1.5s``; return None if the text is no duration or the duration is
    too long."""
    try:
        span = parse_nanoseconds(text)
    except ValueError:
        return None
    return span if abs(span) < _LIMIT else None


def format_duration(text: str) -> int | None:
    """Parse the ``duration`` format, for example ``2 days 3 hours``; return None if the text contains no
    duration.
    """
    nanoseconds = go_duration(text)
    if nanoseconds is not None:
        return nanoseconds
    if len(text) > MAX_NUMBER:
        return None
    total: int | None = None
    for number, word in _LONG_PART.findall(text):
        unit = word.lower()
        if int(number) >= _LIMIT:
            return None
        for factor, names in _LONG_UNITS:
            for name in names:
                if unit == name or (name == names[-1] and unit.startswith(name)):
                    total = (total or 0) + int(number) * factor
                    break
    return total
