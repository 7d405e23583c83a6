"""Where the server takes the time from; tests put their own here."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

from phalanx.model.text.decoding import MAX_NUMBER


class Clock(Protocol):
    """Wall time for timestamps in objects, monotonic time for intervals."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class TimestampCache:
    """Formats a clock's time as metav1.Time; whole seconds repeat, so the last text is kept."""

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


# The last second that four digits of a year can tell.
_LAST = 253_402_300_799


def timestamp(seconds: float) -> str:
    """metav1.Time: RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(min(int(seconds), _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(seconds: float) -> str:
    """metav1.MicroTime: RFC 3339, UTC, exactly six fractional digits."""
    return datetime.fromtimestamp(min(seconds, _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_timestamp(value: object) -> float | None:
    """Seconds since the epoch of an RFC 3339 text, or None when it is not one."""
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
