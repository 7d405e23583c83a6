"""What a job is to the person who looks at it, whichever kind it is."""

from __future__ import annotations

import msgspec

from phalanx.reports.run_times import RunTimeEntry
from phalanx.views.gang_state import GangState

FINISHED = frozenset({"Completed", "Failed", "Terminated"})
SUSPENDED = frozenset({"Aborted", "Suspended"})
# A controller has had time to take up a job by then.
PATIENCE_WITH_CONTROLLERS = 10.0


class PodEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pod of a job. `index` is that of the task, or of an indexed Job; -1 for none. `reason` is why it does not
    run. `owner` is its controller. `gated` pods have scheduling gates; an `evicted` pod has the condition
    DisruptionTarget."""

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
    """One job. `state` is that of its gang, `phase` the word of its own API for it.

    `total` are the pods that the job wants, `minimum` those that start together. `reason` and `message` say why
    it waits or how it ended. `retries` counts restarts, of at most `retry_limit` (None: unknown). `group` is its
    PodGroup, `owner` who made it. `shown` is its name in lists, "" where it was read alone."""

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
        """As it is named on the command line."""
        return self.name if self.kind == "vcjob" else f"{self.kind}/{self.name}"


class ConditionEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`about` is the object that says so."""

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
