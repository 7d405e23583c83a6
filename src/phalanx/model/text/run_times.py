"""Messages about pods that exceed their allowed run time."""

from __future__ import annotations

from phalanx.model.run_time import RunTime
from phalanx.model.text.duration import format_duration


def run_time_sentence(run_time: RunTime) -> str:
    """Return the reason why a pod's run time is exceeded."""
    return f"it runs longer than the {format_duration(run_time.allowed)} of {run_time.allowed_source}"
