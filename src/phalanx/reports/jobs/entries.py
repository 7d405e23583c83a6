"""Fields of a job of any kind that commands show."""

from __future__ import annotations

import msgspec

from phalanx.reports.run_times import RunTimeEntry
from phalanx.views.gang_state import GangState

FINISHED = frozenset({"Completed", "Failed", "Terminated"})
SUSPENDED = frozenset({"Aborted", "Suspended"})
# Seconds within which a running controller would have accepted a job.
PATIENCE_WITH_CONTROLLERS = 10.0


class PodEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Pod of a job in reports. `index` is that of the task or of an indexed Job, -1 for none.

    `index` is that of the task or of an indexed Job, -1 for none. `reason` states why it is not running. `owner` is
    its controller. A `gated` pod has scheduling gates; an `evicted` pod has the condition DisruptionTarget. A
    container of a `failing` pod waits for another cause than its start, such as CrashLoopBackOff.
    """

    name: str
    uid: str = ""
    task: str = ""
    index: int = -1
    phase: str = "Pending"
    ready: bool = False
    terminating: bool = False
    node: str = ""
    created: str = ""
    restarts: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    containers: tuple[str, ...] = ()
    owner: str = ""
    gated: bool = False
    failing: bool = False
    evicted: bool = False

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


class TaskEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    replicas: int
    minimum: int
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class JobEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Job in reports. `state` is the state of its gang, `phase` the phase in the job's own API.

    `total` is the number of wanted pods, `minimum` the number that starts together. `reason` and `message` state
    why it waits or how it ended. `retries` counts restarts, at most `retry_limit` (None: unknown). `group` is its
    PodGroup, `owner` its creator. `shown` is its name in lists, "" if it was read alone.
    """

    kind: str
    namespace: str
    name: str
    uid: str = ""
    queue: str = ""
    scheduler: str = ""
    phase: str = ""
    state: GangState = GangState.PENDING
    minimum: int = 0
    total: int = 0
    pending: int = 0
    running: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0
    retries: int = 0
    retry_limit: int | None = None
    created: str = ""
    finished: str = ""
    reason: str = ""
    message: str = ""
    group: str = ""
    owner: str = ""
    job_type: str = ""
    labels: dict[str, str] = {}
    shown: str = ""

    @property
    def over(self) -> bool:
        return self.phase in FINISHED

    @property
    def target(self) -> str:
        """Name of the job on the command line: KIND/NAME."""
        return self.name if self.kind == "vcjob" else f"{self.kind}/{self.name}"


class ConditionEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Condition of a job or its PodGroup; `about` is the object that has the condition."""

    about: str
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    since: str = ""


class EventEntry(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    reason: str
    about: str
    message: str
    count: int
    seen: str


class JobDescription(msgspec.Struct, frozen=True, kw_only=True):
    job: JobEntry
    plugins: dict[str, list[str]] = {}
    policies: list[str] = []
    tasks: list[TaskEntry] = []
    pods: list[PodEntry] = []
    run_time: RunTimeEntry | None = None
    conditions: list[ConditionEntry] = []
    events: list[EventEntry] = []
