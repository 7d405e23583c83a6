"""What the job controller keeps of each job, group and Command: little of those that have ended."""

from __future__ import annotations

import msgspec

from phalanx.dialects.core import Metadata, OwnerReference, Wire
from phalanx.dialects.times import parse_time
from phalanx.jobs.pod_group import JOB_VERSION_KEY
from phalanx.jobs.policies import Happening, Order
from phalanx.jobs.reconciliation import JobGroup
from phalanx.jobs.spec import BATCH, Command, JobAction, JobEvent
from phalanx.model.text.decoding import parse_whole


class _State(Wire):
    phase: str = ""
    last_transition_time: str | None = None


class _Status(Wire):
    state: _State = msgspec.field(default_factory=_State)
    pending: int = 0
    running: int = 0
    terminating: int = 0
    unknown: int = 0


class _Spec(Wire):
    ttl_seconds_after_finished: int | None = None
    queue: str = ""


class _Job(Wire):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class JobRecord(msgspec.Struct, frozen=True):
    """A job as it is stored: its JSON is read when the job is looked at. `settled` when its status counts no pod
    that may still change."""

    uid: str
    resource_version: str
    raw: bytes
    phase: str
    generation: int
    finished: int
    ttl: int | None
    deleting: bool
    settled: bool


_JOB = msgspec.json.Decoder(_Job, strict=False)
_FINISHED = frozenset({"Completed", "Failed", "Terminated"})


def read_job_record(raw: bytes) -> JobRecord:
    try:
        job = _JOB.decode(raw)
    except msgspec.ValidationError:
        # Some field is of the wrong type: the job is told so when it is looked at.
        job = _Job(metadata=msgspec.json.decode(raw, type=_Named).metadata)
    status, metadata = job.status, job.metadata
    state = status.state
    ended = state.phase in _FINISHED
    return JobRecord(
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        raw=raw,
        phase=state.phase,
        generation=metadata.generation,
        finished=parse_time(state.last_transition_time) if ended else 0,
        ttl=job.spec.ttl_seconds_after_finished if ended else None,
        deleting=metadata.deletion_timestamp is not None,
        settled=not (status.pending or status.running or status.terminating or status.unknown),
    )


class _Named(Wire):
    metadata: Metadata


class _Condition(Wire):
    type: str = ""
    status: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _GroupStatus(Wire):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()


class _Group(Wire):
    metadata: Metadata
    status: _GroupStatus = msgspec.field(default_factory=_GroupStatus)


class JobGroupRecord(msgspec.Struct, frozen=True):
    """A PodGroup that a job controls."""

    uid: str
    resource_version: str
    raw: bytes
    owner: str
    group: JobGroup
    deleting: bool
    message: str


_GROUP = msgspec.json.Decoder(_Group, strict=False)


def read_group(raw: bytes) -> JobGroupRecord | None:
    """The PodGroup, if a Volcano Job controls it."""
    found = _GROUP.decode(raw)
    metadata, status = found.metadata, found.status
    owner = next((each for each in metadata.owner_references if each.controller and _is_job(each)), None)
    if owner is None:
        return None
    unschedulable = next((each for each in status.conditions if each.type == "Unschedulable"), None)
    since = parse_time(unschedulable.last_transition_time) if unschedulable else 0
    group = JobGroup(
        metadata.name,
        metadata.uid,
        status.phase,
        parse_whole(metadata.annotations.get(JOB_VERSION_KEY, ""), 0),
        since if status.phase == "Unknown" else None,
    )
    message = unschedulable.message if unschedulable is not None and unschedulable.status == "True" else ""
    return JobGroupRecord(
        metadata.uid,
        metadata.resource_version,
        raw,
        owner.uid,
        group,
        metadata.deletion_timestamp is not None,
        message,
    )


def _is_job(owner: OwnerReference) -> bool:
    return owner.kind == "Job" and owner.api_version.startswith(f"{BATCH}/")


class CommandRecord(msgspec.Struct, frozen=True):
    """A Command whose target is a job; of which job, where it says so (`target_uid`)."""

    uid: str
    resource_version: str
    name: str
    job: str
    target_uid: str
    order: Order | None


_COMMAND = msgspec.json.Decoder(Command, strict=False)


def read_command(raw: bytes) -> CommandRecord | None:
    command = _COMMAND.decode(raw)
    target = command.target
    if target is None or not _is_job(target):
        return None
    try:
        order = Order(JobAction(command.action), Happening(JobEvent.ANY, 0))
    except ValueError:
        order = None
    metadata = command.metadata
    key = f"{metadata.namespace}/{target.name}"
    return CommandRecord(metadata.uid, metadata.resource_version, metadata.name, key, target.uid, order)


class PriorityClassRecord(msgspec.Struct, frozen=True):
    uid: str
    resource_version: str
    value: int


class _PriorityClass(Wire):
    metadata: Metadata
    value: int = 0


_PRIORITY_CLASS = msgspec.json.Decoder(_PriorityClass)


def read_priority_class(raw: bytes) -> PriorityClassRecord:
    found = _PRIORITY_CLASS.decode(raw)
    return PriorityClassRecord(found.metadata.uid, found.metadata.resource_version, found.value)
