"""Clock of the server; tests replace it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

from phalanx.model.text.decoding import MAX_NUMBER


class Clock(Protocol):
    """Wall time for timestamps in objects, monotonic time for intervals."""

    def now(self) -> float:
        """Return the wall time in seconds since the epoch."""

    def monotonic(self) -> float:
        """Return the seconds on a monotonic clock."""


class SystemClock:
    """Clock that reads the time of the machine."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class TimestampCache:
    """Formatter of a clock's wall time as metav1.Time; the text of the current second is cached."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = -1
        self._text = ""

    def __call__(self) -> str:
        second = int(self._clock.now())
        if second != self._second:
            self._second = second
            self._text = timestamp(second)
        return self._text


# Last second of the year 9999.
_LAST = 253_402_300_799


def timestamp(seconds: float) -> str:
    """Format a Unix time as a metav1.Time: RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(min(int(seconds), _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(seconds: float) -> str:
    """Format a Unix time as a metav1.MicroTime: RFC 3339, UTC, exactly six fractional digits."""
    return datetime.fromtimestamp(min(seconds, _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_timestamp(value: object) -> float | None:
    """Return the Unix time of an RFC 3339 text; None for values of other types or formats."""
    if not isinstance(value, str) or not value:
        return None
    if len(value) > MAX_NUMBER:
        return None
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return None
    if parsed.tzinfo is None:
        return None
    return parsed.timestamp()
