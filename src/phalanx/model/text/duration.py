"""Durations and times in the notation of objects, policies and messages."""

from __future__ import annotations

import re

from phalanx.model.text.decoding import MAX_NUMBER, quoted

_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_LIMIT = 2**63  # about 292 years
_TERM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


def parse_nanoseconds(text: str) -> int:
    """Parse a Go duration (`1h10m`, `-1.5s`) to nanoseconds, below 2**63 as in Go. Raise ValueError."""
    if len(text) > MAX_NUMBER:
        raise ValueError(f"{quoted(text)} is too long for a duration such as 30s, 10m or 1h30m")
    sign = -1 if text.startswith("-") else 1
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0
    total, at = 0, 0
    for term in _TERM.finditer(body):
        if term.start() != at:
            break
        whole, _, fraction = term[1].partition(".")
        total += int(whole or "0") * _UNITS[term[2]]
        total += int(fraction or "0") * _UNITS[term[2]] // 10 ** len(fraction)
        at = term.end()
    if not body or at != len(body) or total >= _LIMIT:
        raise ValueError(f"{quoted(text)} is not a duration such as 30s, 10m or 1h30m")
    return sign * total


def parse_duration(text: str) -> int:
    """Parse a Go duration to seconds, rounded away from zero."""
    span = parse_nanoseconds(text)
    seconds = -(-abs(span) // 10**9)
    return seconds if span >= 0 else -seconds


def format_duration(seconds: int) -> str:
    """Format whole seconds of at least 0 in the shortest form: `36h`, `1h30m`, `90s` as `1m30s`, `0s`."""
    hours, remainder = divmod(seconds, 3600)
    minutes, remaining_seconds = divmod(remainder, 60)
    parts = ((hours, "h"), (minutes, "m"), (remaining_seconds, "s"))
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount) or "0s"


def format_moment(seconds: int) -> str:
    """Format seconds since the epoch as `2024-10-05T00:00:00Z`.

    The date is computed by Howard Hinnant's civil_from_days ("chrono-Compatible Low-Level Date Algorithms"):
    years begin in March, so that the leap day is the last day, and 400 years always have 146097 days.
    """
    days, second = divmod(seconds, 86_400)
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    year += 400 * era + month // 10
    month = (month + 2) % 12 + 1
    return f"{year:04}-{month:02}-{day:02}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
