"""Formats of Kubernetes for times: whole seconds, and microseconds."""

from __future__ import annotations

from datetime import UTC, datetime

from phalanx.model.text.decoding import MAX_NUMBER, quoted

__all__ = ["format_micro_time", "format_time", "parse_time"]


# The last second of the year 9999.
_LAST = 253_402_300_799


def format_time(moment: float) -> str:
    """Format Unix seconds as metav1.Time: RFC 3339 in UTC with whole seconds (cut, not rounded)."""
    return f"{datetime.fromtimestamp(min(int(moment), _LAST), UTC).isoformat(timespec='seconds')[:-6]}Z"


def format_micro_time(moment: float) -> str:
    """Format Unix seconds as metav1.MicroTime: always six digits and a Z; the server rejects other forms."""
    # Half the time of strftime. The text ends with "+00:00".
    return f"{datetime.fromtimestamp(min(moment, _LAST), UTC).isoformat(timespec='microseconds')[:-6]}Z"


def parse_time(text: str) -> float:
    """Parse an RFC 3339 time into Unix seconds. Raises ValueError for other texts, or without a time zone."""
    if len(text) > MAX_NUMBER:
        raise ValueError(f"{quoted(text)} is not an RFC 3339 time")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{quoted(text)} has no time zone")
    return moment.timestamp()
