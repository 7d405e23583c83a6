"""Messages about pods that run longer than allowed."""

from __future__ import annotations

from phalanx.model.run_time import RunTime
from phalanx.model.text.duration import format_duration


def run_time_sentence(run_time: RunTime) -> str:
    """Return the clause of a message that says which run time a pod exceeds."""
    return f"it runs longer than the {format_duration(run_time.allowed)} of {run_time.allowed_source}"
