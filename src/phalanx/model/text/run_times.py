"""What people are told of pods that run longer than they may."""

from __future__ import annotations

from phalanx.model.run_time import RunTime
from phalanx.model.text.duration import format_duration


def run_time_sentence(run_time: RunTime) -> str:
    """Why a pod's time is over."""
    return f"it runs longer than the {format_duration(run_time.allowed)} of {run_time.allowed_source}"
