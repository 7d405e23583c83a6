"""Volcano's Jobs as children of CronJobs, JobFlows and JobTemplates."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.dialects.core import Metadata, Named, Wire
from phalanx.dialects.times import parse_time
from phalanx.jobs.spec import JobPhase, TaskState

CREATED_BY_FLOW = "volcano.sh/createdByJobFlow"
CREATED_BY_TEMPLATE = "volcano.sh/createdByJobTemplate"
SCHEDULED_TIMESTAMP = "volcano.sh/cronjob-scheduled-timestamp"
ENDED = frozenset({JobPhase.COMPLETED, JobPhase.FAILED, JobPhase.TERMINATED})


class ChildJob(msgspec.Struct, frozen=True, kw_only=True):
    """Volcano Job that a CronJob, JobFlow or user created; times are in seconds, 0 if unknown.

    `owner` is the uid of its controller, `owner_kind` the controller's kind. `template` (`<namespace>.<name>`) is
    its stated JobTemplate, `scheduled` its stated CronJob time, `tasks` the wanted pods of each task.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    owner: str = ""
    owner_kind: str = ""
    phase: str = ""
    created: int = 0
    finished: int = 0
    deleting: bool = False
    retries: int = 0
    running_duration: str | None = None
    task_status_count: dict[str, TaskState] = msgspec.field(default_factory=dict)
    template: str = ""
    scheduled: int = 0
    tasks: dict[str, int] = {}

    @property
    def ended(self) -> bool:
        return self.phase in ENDED


class _State(Wire):
    phase: str = ""
    last_transition_time: str | None = None


class _Status(Wire):
    state: _State = msgspec.field(default_factory=_State)
    retry_count: int = 0
    running_duration: str | None = None
    task_status_count: dict[str, TaskState] = msgspec.field(default_factory=dict)


class _Task(Wire):
    name: str = ""
    replicas: int = 1


class _Spec(Wire):
    tasks: tuple[_Task, ...] = ()


class _Job(Wire):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_JOB = msgspec.json.Decoder(_Job, strict=False)


def read_child_job(raw: bytes) -> ChildJob:
    """Decode a Volcano Job. Raise msgspec.DecodeError if it has no name."""
    try:
        job = _JOB.decode(raw)
    except msgspec.ValidationError:
        # A field has the wrong type: the phase of such a job is unknown.
        job = _Job(metadata=msgspec.json.decode(raw, type=Named).metadata)
    metadata, status = job.metadata, job.status
    owner = next((reference for reference in metadata.owner_references if reference.controller), None)
    ended = status.state.phase in ENDED
    return ChildJob(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        owner=owner.uid if owner is not None else "",
        owner_kind=owner.kind if owner is not None else "",
        phase=status.state.phase,
        created=parse_time(metadata.creation_timestamp),
        finished=parse_time(status.state.last_transition_time) if ended else 0,
        deleting=metadata.deletion_timestamp is not None,
        retries=status.retry_count,
        running_duration=status.running_duration,
        task_status_count=status.task_status_count,
        template=metadata.labels.get(CREATED_BY_TEMPLATE) or metadata.annotations.get(CREATED_BY_TEMPLATE, ""),
        scheduled=parse_time(metadata.annotations.get(SCHEDULED_TIMESTAMP)),
        tasks={task.name or f"default{index}": max(0, task.replicas) for index, task in enumerate(job.spec.tasks)},
    )


def controlled_by(api_version: str, kind: str, metadata: Metadata) -> dict[str, Any]:
    """Return the owner reference for objects whose controller is the object with this kind and metadata."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
