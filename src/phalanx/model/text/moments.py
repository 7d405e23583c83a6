"""Moments as commands and pages show them: absolute (RFC 3339) in data, relative with the time of day in text."""

from __future__ import annotations

from phalanx.model.text.duration import format_moment

# From here on years have five digits; no such moment is a date that a user plans with.
_END = 253_402_300_800
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def shown_moment(seconds: float | None) -> str:
    """Format a moment (seconds since the epoch) as `2026-11-28T08:15:29Z`.

    Return "" for an unknown moment: None, zero and below, and years of more than four digits.
    """
    return format_moment(int(seconds)) if seconds is not None and 1 <= seconds < _END else ""


def relative_moment(seconds: float | None, now: float) -> str:
    """Format a moment as `in 20 min (08:15:29)` or `20 min ago (08:15:29)`, with the date unless it is the date of
    `now`. Times of day are UTC. Return "" for an unknown moment, as `shown_moment` does."""
    absolute = shown_moment(seconds)
    if not absolute or seconds is None:
        return ""
    day, clock = absolute.rstrip("Z").split("T")
    beside = clock if day == format_moment(int(now)).partition("T")[0] else f"{day} {clock}"
    left = int(seconds) - int(now)
    if not left:
        return f"now ({beside})"
    return f"in {shown_span(left)} ({beside})" if left > 0 else f"{shown_span(-left)} ago ({beside})"


def shown_span(seconds: int) -> str:
    """Format a number of seconds in its one or two largest units: `45 s`, `20 min`, `3 h 20 min`, `2 d 3 h`."""
    if seconds < _MINUTE:
        return f"{seconds} s"
    minutes = (seconds + _MINUTE // 2) // _MINUTE
    if minutes < 60:
        return f"{minutes} min"
    if minutes < _DAY // _MINUTE:
        return _two(minutes, 60, "h", "min")
    return _two((seconds + _HOUR // 2) // _HOUR, 24, "d", "h")


def _two(amount: int, size: int, large: str, small: str) -> str:
    whole, rest = divmod(amount, size)
    return f"{whole} {large} {rest} {small}" if rest else f"{whole} {large}"
