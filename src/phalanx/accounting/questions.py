"""Questions about recorded usage and their answers, for the database and for the page's server."""

from __future__ import annotations

import msgspec

#: Columns that reports can group by.
DIMENSIONS = ("queue", "user", "namespace")
#: Largest number of runs in one answer of a server.
MOST_RUNS = 50_000


class RunFilter(msgspec.Struct, frozen=True):
    """Filter for runs that existed at some time within [`since`, `until`), as in sacct.

    `states` are final or current states. An empty filter matches every run."""

    since: int
    until: int
    namespace: str = ""
    queues: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    gang: str = ""


class RunEntry(msgspec.Struct, frozen=True, rename="camel"):
    """Recorded run of a gang. Times are seconds since the epoch, None if not reached; `wait` and `run` are seconds.

    `run` counts the seconds in which any member was bound. `used` is by resource in amount times seconds, exactly;
    CPU is in thousandths of a core. `estimated` is True if any time is an estimate.
    """

    namespace: str
    name: str
    kind: str
    uid: str
    queue: str
    user: str
    state: str
    reason: str
    submitted: int
    admitted: int | None
    started: int | None
    ended: int | None
    wait: int
    run: int
    members: int
    evictions: int
    estimated: bool
    used: dict[str, int]
    evicted: dict[str, int]


class Used(msgspec.Struct):
    """Usage of one resource in amount times seconds, exactly (CPU in thousandths of a core): in total, by evicted
    pods, and by failed pods."""

    used: int = 0
    evicted: int = 0
    failed: int = 0


class ReportLine(msgspec.Struct):
    """Line of a usage report: the usage of one group (queue, user, namespace); `group` has one value per requested
    dimension.

    `started` and `ended` count runs, `states` the ended ones by state. Waits are those of started runs in seconds,
    None without any.
    """

    group: tuple[str, ...]
    resources: dict[str, Used]
    started: int = 0
    ended: int = 0
    states: dict[str, int] = {}
    wait_p50: int | None = None
    wait_p90: int | None = None


class RunsAnswer(msgspec.Struct, frozen=True):
    """Recorded runs that a user can see; `namespace` is the only visible one, "" for all."""

    runs: list[RunEntry]
    namespace: str = ""


class ReportQuestion(msgspec.Struct, frozen=True):
    """Question for a usage report: group by `by` (some of DIMENSIONS), from `since` until `until`."""

    by: tuple[str, ...]
    since: int
    until: int
    queues: tuple[str, ...] = ()
    namespace: str = ""


class ReportAnswer(msgspec.Struct, frozen=True):
    """Lines of a usage report about what a user can see; `namespace` is the only visible one, "" for all."""

    lines: list[ReportLine]
    namespace: str = ""
