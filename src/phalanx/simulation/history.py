"""History of the jobs of one simulation, for its metrics."""

from __future__ import annotations

import enum

import msgspec


class JobOutcome(enum.StrEnum):
    """End of a job, or its state at the end of the simulation."""

    DONE = "done"
    KILLED = "killed"  # at its run-time limit
    WITHDRAWN = "withdrawn"  # by its user, after the patience was over
    RUNNING = "running"
    WAITING = "waiting"


class Stint(msgspec.Struct):
    """Pods that were bound at one moment: count per node, and the end of the last of them (None: not yet)."""

    begin: int
    nodes: dict[str, int]
    end: int | None = None


class JobHistory(msgspec.Struct):
    """Course of one job; times in seconds since the epoch, None if not reached.

    `start` is the first time at which its quorum was bound, `end` that of its last pod's end. `interrupted` is the
    time at which a started job lost its quorum, None while it runs. `work` are the seconds that each pod runs, None
    if the job has no end. `ran` are pod seconds on nodes, `useful` those whose work was not lost. `why` is the last
    verdict. `promised` is the first promised start, `slip` the cause of its last postponement.
    """

    name: str
    submit: int
    width: int
    pods: int
    queue: str
    user: str
    limit: int
    priority: int = 0
    start: int | None = None
    end: int | None = None
    outcome: JobOutcome = JobOutcome.WAITING
    evicted: int = 0  # number of evicted pods
    restarts: int = 0  # number of restarts of the whole job
    lost: int = 0  # number of pods on failed nodes
    failures: int = 0  # number of failed pods
    work: int | None = None
    interrupted: int | None = None
    ran: int = 0
    useful: int = 0
    node: str = ""  # node of its first pod
    why: str = ""
    promised: int | None = None
    slip: str = ""
    stints: list[Stint] = []

    def wait(self, now: int) -> int:
        """Return the seconds from its submission to its start. The wait of a job that waits now, also after an
        interruption, lasts until `now`, and that of a withdrawn job until its withdrawal."""
        if self.start is None:
            return (self.end if self.end is not None else now) - self.submit
        waits_again = now - self.interrupted if self.interrupted is not None and self.end is None else 0
        return self.start - self.submit + waits_again

    @property
    def never_started(self) -> bool:
        return self.start is None

    @property
    def wait_is_censored(self) -> bool:
        """Whether the wait is only a lower bound: the job waits at the end of the simulation, or was withdrawn."""
        return self.start is None or self.outcome is JobOutcome.WAITING

    @property
    def lateness(self) -> int | None:
        """Delay in seconds of the start after the first promised start, negative if earlier; None without both."""
        return self.start - self.promised if self.start is not None and self.promised is not None else None

    def lateness_at(self, now: int) -> int | None:
        """Return the lateness; of a job that has not started, the delay so far, None before its promised start."""
        if self.start is None and self.promised is not None and self.promised < now:
            return now - self.promised
        return self.lateness

    @property
    def run(self) -> int:
        """Seconds from its start to its end; 0 before its end."""
        return self.end - self.start if self.start is not None and self.end is not None else 0

    def flow(self, now: int) -> int:
        """Return the seconds from its submission to its end; so far if it has not ended."""
        return (self.end if self.end is not None else now) - self.submit


class Integral:
    """Integral over time of amounts that change at moments, as exact amount seconds."""

    __slots__ = ("_since", "amounts", "sums")

    def __init__(self) -> None:
        self.amounts: dict[str, int] = {}
        self.sums: dict[str, int] = {}
        self._since: dict[str, int] = {}

    def add(self, now: int, changes: tuple[tuple[str, int], ...], factor: int = 1) -> None:
        for name, amount in changes:
            before = self.amounts.get(name, 0)
            if before:
                self.sums[name] = self.sums.get(name, 0) + before * (now - self._since[name])
            self._since[name] = now
            self.amounts[name] = before + amount * factor

    def total(self, now: int) -> dict[str, int]:
        """Return the sums at `now` if nothing changes until then."""
        return {
            name: self.sums.get(name, 0) + amount * (now - self._since[name])
            for name, amount in self.amounts.items()
        }

    def restart(self, now: int) -> None:
        """Reset the sums, so that only the time from `now` on counts."""
        self.sums = {}
        self._since = dict.fromkeys(self._since, now)
