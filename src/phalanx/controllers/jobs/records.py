"""Records of jobs, PodGroups and Commands in the controller's stores; small for finished jobs."""

from __future__ import annotations

import msgspec

from phalanx.dialects.core import Metadata, OwnerReference, Wire
from phalanx.dialects.times import parse_time
from phalanx.jobs.pod_group import JOB_VERSION_KEY
from phalanx.jobs.policies import Happening, Order
from phalanx.jobs.reconciliation import JobGroup
from phalanx.jobs.spec import BATCH, Command, JobAction, JobEvent
from phalanx.model.node_request import ADMISSION_WITHDRAWN
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
    """Job in the controller's store; its JSON is decoded at reconciliation. `settled`: its status counts no pod
    that can still change."""

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
        # A field has the wrong type: reconciliation reports it on the job.
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
    """PodGroup that a Volcano Job controls."""

    uid: str
    resource_version: str
    raw: bytes
    owner: str
    group: JobGroup
    deleting: bool
    message: str


_GROUP = msgspec.json.Decoder(_Group, strict=False)


def read_group(raw: bytes) -> JobGroupRecord | None:
    """Decode a PodGroup that a Volcano Job controls; return None for other PodGroups."""
    pod_group = _GROUP.decode(raw)
    metadata, status = pod_group.metadata, pod_group.status
    owner = next(
        (reference for reference in metadata.owner_references if reference.controller and _is_job(reference)), None
    )
    if owner is None:
        return None
    unschedulable = next((condition for condition in status.conditions if condition.type == "Unschedulable"), None)
    since = parse_time(unschedulable.last_transition_time) if unschedulable else 0
    group = JobGroup(
        metadata.name,
        metadata.uid,
        status.phase,
        parse_whole(metadata.annotations.get(JOB_VERSION_KEY, ""), 0),
        since if status.phase == "Unknown" else None,
        any(
            condition.type == ADMISSION_WITHDRAWN and condition.status == "True" for condition in status.conditions
        ),
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
    """Command for a job; `target_uid` is the uid of the job, if the Command states it."""

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
    priority_class = _PRIORITY_CLASS.decode(raw)
    return PriorityClassRecord(
        priority_class.metadata.uid, priority_class.metadata.resource_version, priority_class.value
    )
