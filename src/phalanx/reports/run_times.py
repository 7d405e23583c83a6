"""For how long pods run, as people read it: limit and estimate with their sources, and what nobody sees to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from phalanx.model.pod import Pod
from phalanx.model.run_time import RunTime
from phalanx.model.text.duration import format_duration, format_moment

NO_END = "no end known"


class RunTimeEntry(msgspec.Struct, omit_defaults=True):
    """Of a pod, or of a gang: then of the member that may stay the longest.

    `limit` is when it is killed (a duration from its start, "" where no end is known), `deadline` the moment at
    which that is in any case, `estimate` what its user says. `allowed` is for how long it may run by its queue or
    its own word where nobody ends it then. `endless` counts the members without an end, where others have one.
    """

    limit: str = ""
    limit_source: str = ""
    deadline: str = ""
    deadline_source: str = ""
    estimate: str = ""
    estimate_source: str = ""
    allowed: str = ""
    allowed_source: str = ""
    endless: int = 0

    def lines(self) -> list[str]:
        """A line each for limit, estimate, and what is only allowed."""
        limit = f"at most {self.limit} ({self.limit_source})" if self.limit else NO_END
        if self.deadline:
            limit += f", until {self.deadline} at the latest"
            limit += f" ({self.deadline_source})" if self.deadline_source != self.limit_source else ""
        if self.endless:
            limit += f": {self.endless} of its pods state none"
        lines = [f"Runs: {limit}"]
        if self.estimate:
            lines.append(f"Expected to run: {self.estimate} ({self.estimate_source})")
        if self.allowed:
            lines.append(
                f"May run: {self.allowed} ({self.allowed_source}); nothing ends it then (policy "
                "phalanx.exceededRunTimes), so no start of others is promised on it"
            )
        return lines


def run_time_of(pods: Sequence[Pod]) -> RunTimeEntry | None:
    """None where there is nobody to tell about."""
    times = [pod.run_time for pod in pods if not pod.finished and not pod.placeholder]
    if not times:
        return None
    endless = sum(not time.limit for time in times)
    longest = max(times, key=lambda time: time.limit)
    estimated = max(times, key=lambda time: time.estimate)
    allowed = max(times, key=_merely_allowed)
    entry = RunTimeEntry()
    if not endless:
        entry.limit, entry.limit_source = format_duration(longest.limit), longest.limit_source
        last = max(times, key=lambda time: time.deadline)
        if all(time.deadline for time in times):
            entry.deadline, entry.deadline_source = format_moment(last.deadline), last.deadline_source
    elif endless < len(times):
        entry.endless = endless
    if estimated.estimate:
        entry.estimate, entry.estimate_source = format_duration(estimated.estimate), estimated.estimate_source
    if _merely_allowed(allowed):
        entry.allowed, entry.allowed_source = format_duration(allowed.allowed), allowed.allowed_source
    return entry


def _merely_allowed(time: RunTime) -> int:
    """For how long a pod may run, where that is less than what ends it."""
    return time.allowed if not time.limit or time.allowed < time.limit else 0
