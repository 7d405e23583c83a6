"""How long a pod runs: the limit that is enforced, and what its user says, each with where it comes from."""

from __future__ import annotations

import msgspec


class StatedRunTime(msgspec.Struct, frozen=True):
    """What one object says about the pods that it is about, in seconds, 0 where it says nothing.

    `allowed` is for how long they may run by what it says, whoever sees to it. Of several estimates the one with
    the least `rank` holds.
    """

    allowed: int = 0
    allowed_source: str = ""
    estimate: int = 0
    estimate_source: str = ""
    rank: int = 0


NOTHING_STATED = StatedRunTime()


class RunTime(msgspec.Struct, frozen=True):
    """Three values that are never mixed: the *limit* (when a pod is killed), the *estimate* (what its user says
    that it needs) and the prediction (what we compute; kept elsewhere, never promised on). All in seconds.

    `limit` counts from the pod's own start, 0 where none is known; `deadline` (seconds since the epoch) is a moment
    at which it is killed whenever it has started, 0 where there is none: the clock of a job that has begun before
    it. `estimate` counts from the pod's start, 0 where the user says nothing. `allowed` is for how long it may run
    by its queue or its own word, which nobody but us sees to: it counts as a limit only where we do. The sources
    are for people: the field or annotation, as its users write it.
    """

    limit: int = 0
    limit_source: str = ""
    deadline: int = 0
    estimate: int = 0
    estimate_source: str = ""
    deadline_source: str = ""
    allowed: int = 0
    allowed_source: str = ""

    def latest_end(self, start: float, grace: int) -> float | None:
        """When at the latest a pod that starts at `start` has left its node; None where no end is known.

        `grace` are the seconds that it gets to leave once it is told to.
        """
        ends = [start + self.limit] if self.limit else []
        if self.deadline:
            ends.append(float(self.deadline))
        return min(ends) + grace if ends else None

    def expected(self) -> int:
        """For how many seconds it is said to run: the estimate, at most the limit; 0 where neither is known."""
        if self.limit and self.estimate:
            return min(self.limit, self.estimate)
        return self.estimate or self.limit

    def exceeded(self, started: float, now: float) -> bool:
        """Whether a pod that started at `started` runs longer than it is allowed to."""
        return bool(self.allowed and started) and now >= started + self.allowed


NO_RUN_TIME = RunTime()
