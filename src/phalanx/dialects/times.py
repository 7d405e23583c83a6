"""The spellings of time in the objects that we read and write."""

from __future__ import annotations

from datetime import UTC, datetime

from phalanx.model.duration import parse_duration

__all__ = ["format_time", "parse_duration", "parse_time"]


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
