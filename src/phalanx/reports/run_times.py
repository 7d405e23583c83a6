"""Run times of pods for display: limit and estimate with their sources, and limits that no component enforces."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from phalanx.model.pod import Pod
from phalanx.model.run_time import RunTime
from phalanx.model.text.duration import format_duration, format_moment

NO_END = "no end known"


class RunTimeEntry(msgspec.Struct, omit_defaults=True):
    """Run time of a pod, or of the longest-running member of a gang.

    `limit` is the duration from its start until it is killed ("" without a known end), `deadline` the latest time
    of that, `estimate` the user's estimate, at most the limit (`stated_estimate` if the user stated more).
    `allowed` is a limit that its queue or the pod states and nothing enforces. `endless` counts members without an
    end if other members have one.
    """

    limit: str = ""
    limit_source: str = ""
    deadline: str = ""
    deadline_source: str = ""
    estimate: str = ""
    estimate_source: str = ""
    stated_estimate: str = ""
    allowed: str = ""
    allowed_source: str = ""
    endless: int = 0

    def lines(self) -> list[str]:
        """Format the run time as lines: limit, estimate and unenforced limit."""
        limit = f"at most {self.limit} ({self.limit_source})" if self.limit else NO_END
        if self.deadline:
            limit += f", until {self.deadline} at the latest"
            limit += f" ({self.deadline_source})" if self.deadline_source != self.limit_source else ""
        if self.endless:
            limit += f": {self.endless} of its pods have no limit"
        lines = [f"Runs: {limit}"]
        if self.estimate:
            above = f", {self.stated_estimate}, is above the limit" if self.stated_estimate else ""
            lines.append(f"Expected to run: {self.estimate} ({self.estimate_source}{above})")
        if self.allowed:
            lines.append(
                f"May run: {self.allowed} ({self.allowed_source}); nothing enforces this limit (policy "
                "phalanx.exceededRunTimes), so no promised start relies on it"
            )
        return lines


def run_time_of(pods: Sequence[Pod]) -> RunTimeEntry | None:
    """Return the run time of the longest-running of these pods; None without pods that have one."""
    times = [pod.run_time for pod in pods if not pod.finished and not pod.placeholder]
    if not times:
        return None
    endless = sum(not time.limit for time in times)
    longest = max(times, key=lambda time: time.limit)
    estimated = max((time for time in times if time.estimate), key=lambda time: time.expected(), default=None)
    allowed = max(times, key=_merely_allowed)
    entry = RunTimeEntry()
    if not endless:
        entry.limit, entry.limit_source = format_duration(longest.limit), longest.limit_source
        last = max(times, key=lambda time: time.deadline)
        if all(time.deadline for time in times):
            entry.deadline, entry.deadline_source = format_moment(last.deadline), last.deadline_source
    elif endless < len(times):
        entry.endless = endless
    if estimated is not None:
        entry.estimate, entry.estimate_source = format_duration(estimated.expected()), estimated.estimate_source
        if estimated.estimate > estimated.expected():
            entry.stated_estimate = format_duration(estimated.estimate)
    if _merely_allowed(allowed):
        entry.allowed, entry.allowed_source = format_duration(allowed.allowed), allowed.allowed_source
    return entry


def _merely_allowed(time: RunTime) -> int:
    """Return the permitted run time of a pod in seconds if it is shorter than the enforced limit, else 0."""
    return time.allowed if not time.limit or time.allowed < time.limit else 0
