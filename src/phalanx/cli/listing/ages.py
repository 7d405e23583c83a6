"""Spans of time as kubectl's users read them."""

from __future__ import annotations

from phalanx.dialects.times import parse_time
from phalanx.model.text.moments import relative_moment

_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def span(seconds: float) -> str:
    """In the two largest units: `3m12s`, `5d2h`."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for size, unit in _UNITS:
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size}{unit}")
            left %= size
        elif parts:
            break
    return "".join(parts[:2])


def age(moment: str, now: float) -> str:
    """Return the span since a moment of the API; "" for none."""
    return span(int(now) - since) if (since := parse_time(moment)) > 0 else ""


def relative(moment: str, now: float) -> str:
    """Return a moment of RFC 3339 as `in 20 min (08:15:29)`, the time of day in UTC; "" for none."""
    return relative_moment(parse_time(moment), now)
