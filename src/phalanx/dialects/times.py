"""The spellings of time in the objects that we read and write."""

from __future__ import annotations

import re
from datetime import UTC, datetime

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
_TERM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


def parse_time(text: str | None) -> int:
    """Whole seconds since the epoch of an RFC 3339 time; 0 for anything else (age only breaks ties)."""
    if not text:
        return 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def format_time(seconds: int) -> str:
    """metav1.Time."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_duration(text: str) -> int:
    """A Go duration (`1h10m`, `90s`, `1.5m`) in seconds, rounded up. Raises ValueError."""
    body = text.removeprefix("-").removeprefix("+")
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
    if not body or at != len(body):
        raise ValueError(f"{text!r} is not a duration such as 30s, 10m or 1h30m")
    seconds = -(-total // 10**9)
    return -seconds if text.startswith("-") else seconds
