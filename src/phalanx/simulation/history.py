"""What happened to the jobs of one simulation, for whoever measures it."""

from __future__ import annotations

import enum

import msgspec


class JobOutcome(enum.StrEnum):
    """How a job ended, or where it stands when the simulation does."""

    DONE = "done"
    KILLED = "killed"  # at its limit
    WITHDRAWN = "withdrawn"  # its user had no patience any more
    RUNNING = "running"
    WAITING = "waiting"


class Stint(msgspec.Struct):
    """Pods that got nodes in one moment: how many on each, until the last of them had left (None: not yet)."""

    begin: int
    nodes: dict[str, int]
    end: int | None = None


class JobHistory(msgspec.Struct):
    """One job as it went; times in seconds since the epoch, None where it has not happened.

    `start` is when its quorum had its nodes for the first time, `end` when its last pod had left. `ran` are pod
    seconds on nodes, `useful` those of them whose work counted in the end. `why` is what the scheduler last said.
    `promised` is the start that it was told first, `slip` the cause for which that was taken back last.
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
    evicted: int = 0  # pods that were told to leave
    restarts: int = 0  # how often the whole of it began anew
    lost: int = 0  # pods that a failing node took along
    ran: int = 0
    useful: int = 0
    node: str = ""  # of its first pod
    why: str = ""
    promised: int | None = None
    slip: str = ""
    stints: list[Stint] = []

    def wait(self, now: int) -> int:
        return (self.start if self.start is not None else now) - self.submit

    @property
    def lateness(self) -> int | None:
        """By how much it started later than it was promised, negative where it was earlier; None without either."""
        return self.start - self.promised if self.start is not None and self.promised is not None else None

    @property
    def run(self) -> int:
        """From its start to its end; 0 where it has not ended."""
        return self.end - self.start if self.start is not None and self.end is not None else 0


class Integral:
    """The sum over time of amounts that change at moments: amount seconds, exact."""

    __slots__ = ("_since", "amounts", "sums")

    def __init__(self) -> None:
        self.amounts: dict[str, int] = {}
        self.sums: dict[str, int] = {}
        self._since: dict[str, int] = {}

    def add(self, now: int, changes: tuple[tuple[str, int], ...], factor: int = 1) -> None:
        for name, amount in changes:
            held = self.amounts.get(name, 0)
            if held:
                self.sums[name] = self.sums.get(name, 0) + held * (now - self._since[name])
            self._since[name] = now
            self.amounts[name] = held + amount * factor

    def total(self, now: int) -> dict[str, int]:
        """What the sums are if nothing changes until `now`."""
        return {
            name: self.sums.get(name, 0) + held * (now - self._since[name]) for name, held in self.amounts.items()
        }

    def restart(self, now: int) -> None:
        """Counts from now on only."""
        self.sums = {}
        self._since = dict.fromkeys(self._since, now)
