"""Ages and time spans in kubectl's notation."""

from __future__ import annotations

from phalanx.dialects.times import parse_time
from phalanx.model.text.moments import relative_moment

_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def span(seconds: float) -> str:
    """Format a number of seconds in its two largest units: `3m12s`, `5d2h`."""
    remaining = max(0, int(seconds))
    parts: list[str] = []
    for size, unit in _UNITS:
        if remaining >= size or (unit == "s" and not parts):
            parts.append(f"{remaining // size}{unit}")
            remaining %= size
        elif parts:
            break
    return "".join(parts[:2])


def age(moment: str, now: float) -> str:
    """Format the time since an API timestamp in its two largest units; "" if there is none."""
    return span(int(now) - since) if (since := parse_time(moment)) > 0 else ""


def relative(moment: str, now: float) -> str:
    """Format an RFC 3339 timestamp as `in 20 min (08:15:29)` (time of day in UTC); "" if there is none."""
    return relative_moment(parse_time(moment), now)


OVERDUE = "overdue"


def promised_moment(moment: str, now: float) -> str:
    """Return a promised start as `relative` does; `overdue, 20 min ago (08:15:29)` once it has passed."""
    shown = relative(moment, now)
    return f"{OVERDUE}, {shown}" if shown and parse_time(moment) < int(now) else shown
