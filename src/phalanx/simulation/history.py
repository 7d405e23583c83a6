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

    `start` is the first time at which its quorum was bound, `end` that of its last pod's end. `ran` are pod
    seconds on nodes, `useful` those whose work was not lost. `why` is the last verdict.
    `promised` is the first promised start, `slip` the cause of its last postponement.
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
    ran: int = 0
    useful: int = 0
    node: str = ""  # node of its first pod
    why: str = ""
    promised: int | None = None
    slip: str = ""
    stints: list[Stint] = []

    def wait(self, now: int) -> int:
        return (self.start if self.start is not None else now) - self.submit

    @property
    def lateness(self) -> int | None:
        """Delay in seconds of the start after the first promised start, negative if earlier; None without both."""
        return self.start - self.promised if self.start is not None and self.promised is not None else None

    @property
    def run(self) -> int:
        """Seconds from its start to its end; 0 before its end."""
        return self.end - self.start if self.start is not None and self.end is not None else 0


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
