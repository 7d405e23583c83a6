"""The two ways in which Kubernetes writes a moment: whole seconds, and microseconds."""

from __future__ import annotations

from datetime import UTC, datetime

from phalanx.model.text.decoding import MAX_NUMBER, quoted

__all__ = ["format_micro_time", "format_time", "parse_time"]


# The last second that four digits of a year can tell.
_LAST = 253_402_300_799


def format_time(moment: float) -> str:
    """metav1.Time: RFC 3339 in UTC with whole seconds (cut, not rounded). ``moment`` is Unix seconds."""
    return datetime.fromtimestamp(min(int(moment), _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: float) -> str:
    """metav1.MicroTime: always six digits and a Z; the server refuses any other number of digits."""
    return datetime.fromtimestamp(min(moment, _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    """Unix seconds of an RFC 3339 moment; ValueError when it is none or names no time zone."""
    if len(text) > MAX_NUMBER:
        raise ValueError(f"{quoted(text)} is no moment of time")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.timestamp()
