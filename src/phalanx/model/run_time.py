"""Run time of a pod: the enforced limit and the user's estimate, each with its source."""

from __future__ import annotations

import msgspec


class StatedRunTime(msgspec.Struct, frozen=True):
    """Run time that one API object states for its pods, in seconds, 0 if unset.

    `allowed` is the stated maximum, enforced by any component. Of several estimates the one with the lowest `rank`
    applies.
    """

    allowed: int = 0
    allowed_source: str = ""
    estimate: int = 0
    estimate_source: str = ""
    rank: int = 0


NOTHING_STATED = StatedRunTime()


class RunTime(msgspec.Struct, frozen=True):
    """Run time of a pod as three values that are never mixed (limit, estimate, allowed maximum), all in seconds.

    The *limit* is when a pod is killed, the *estimate* is the user's statement, the prediction is computed
    elsewhere and never used for promises.

    `limit` counts from the pod's own start, 0 if unknown; `deadline` (seconds since the epoch) is when the pod is
    killed regardless of its start, 0 if unset: the deadline of a job that started before the pod. `estimate` counts
    from the pod's start, 0 if unset. `allowed` is the maximum of its queue or of the pod itself, which only
    Phalanx enforces: it counts as a limit only if Phalanx does so. The sources are for users: the name of the
    field or annotation.
    """

    limit: int = 0
    limit_source: str = ""
    deadline: int = 0
    estimate: int = 0
    estimate_source: str = ""
    deadline_source: str = ""
    allowed: int = 0
    allowed_source: str = ""

    def latest_end(self, start: int, grace: int) -> int | None:
        """Return the latest time at which a pod that starts at `start` has left its node; None if unknown.

        `grace` is the pod's termination grace period in seconds.
        """
        if not self.deadline:
            return start + self.limit + grace if self.limit else None
        return (min(start + self.limit, self.deadline) if self.limit else self.deadline) + grace

    def expected(self) -> int:
        """Return the expected run time of the pod in seconds: the estimate, at most the limit; 0 if both are
        unknown."""
        if self.limit and self.estimate:
            return min(self.limit, self.estimate)
        return self.estimate or self.limit

    def exceeded(self, started: int, now: int) -> bool:
        """Return whether a pod that started at `started` has run longer than allowed."""
        return bool(self.allowed and started) and now >= started + self.allowed


NO_RUN_TIME = RunTime()
