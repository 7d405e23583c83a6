"""Job, CronJob, JobFlow, JobTemplate and Command as users write them (docs/rules/volcano.md, 1.3 and 1.4).

Fields have upstream's names and defaults. Defaults of the API server and of the webhook are applied here again,
because both can be missing. Pod templates, volume claims and patches are plain JSON: they are copied, and the API
server validates the created objects.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.dialects.core import Metadata, OwnerReference
from phalanx.dialects.lenient import DecodingFault, decode_leniently
from phalanx.model.pod_quota import mapping

BATCH, BUS, FLOW = "batch.volcano.sh", "bus.volcano.sh", "flow.volcano.sh"
VERSION = "v1alpha1"

DEFAULT_QUEUE = "default"
DEFAULT_MAX_RETRY = 3

Json = Mapping[str, Any]


class JobPhase(enum.StrEnum):
    """Phase of a Volcano Job, in upstream's words."""

    NEW = ""
    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    ABORTING = "Aborting"
    ABORTED = "Aborted"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    FAILED = "Failed"


class JobAction(enum.StrEnum):
    """Action of a lifecycle policy or of a Command on a Volcano Job."""

    ABORT_JOB = "AbortJob"
    RESTART_JOB = "RestartJob"
    RESTART_TASK = "RestartTask"
    RESTART_POD = "RestartPod"
    RESTART_PARTITION = "RestartPartition"
    TERMINATE_JOB = "TerminateJob"
    COMPLETE_JOB = "CompleteJob"
    RESUME_JOB = "ResumeJob"


class JobEvent(enum.StrEnum):
    """Event of a Volcano Job that a lifecycle policy can handle."""

    ANY = "*"
    POD_FAILED = "PodFailed"
    POD_EVICTED = "PodEvicted"
    POD_PENDING = "PodPending"
    UNKNOWN = "Unknown"
    TASK_COMPLETED = "TaskCompleted"
    TASK_FAILED = "TaskFailed"
    JOB_UPDATED = "JobUpdated"


class LifecyclePolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Lifecycle policy: the action of a job or task on an event. Actions and events are plain text, so that a bad
    one affects only this policy.

    `timeout` is a Go duration, such as `5m0s`.
    """

    action: str = ""
    event: str = ""
    events: tuple[str, ...] = ()
    exit_code: int | None = None
    timeout: str = ""

    def all_events(self) -> tuple[str, ...]:
        """Return the events in both fields of the policy, each once."""
        return tuple(dict.fromkeys((self.event, *self.events) if self.event else self.events))


class NetworkTopology(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    mode: str = ""
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class Dependency(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Tasks that must be ready before the pods of this task are created; `iteration` is any or all."""

    name: tuple[str, ...] = ()
    iteration: str = ""


class PartitionPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    total_partitions: int = 0
    partition_size: int = 0
    min_partitions: int = 0
    network_topology: NetworkTopology | None = None


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Task of a Volcano Job; `min_available` is None if unset (use `minimum`)."""

    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    template: dict[str, Any] = {}
    policies: tuple[LifecyclePolicy, ...] = ()
    topology_policy: str = ""
    max_retry: int | None = None
    depends_on: Dependency | None = None
    partition_policy: PartitionPolicy | None = None

    @property
    def minimum(self) -> int:
        """Number of pods of this task without which the job cannot start."""
        if self.min_available is not None:
            return self.min_available
        if self.partition_policy is not None and self.partition_policy.min_partitions > 0:
            return self.partition_policy.min_partitions * self.partition_policy.partition_size
        return self.replicas


class VolumeSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: dict[str, Any] | None = None


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Spec of a Volcano Job; `plugins` maps a plugin's name to its arguments, such as `--port=22`."""

    scheduler_name: str = ""
    min_available: int | None = None
    min_success: int | None = None
    max_retry: int | None = None
    queue: str = ""
    priority_class_name: str = ""
    ttl_seconds_after_finished: int | None = None
    running_estimate: Any = None  # duration for the scheduler, which validates it
    plugins: dict[str, tuple[str, ...]] = {}
    policies: tuple[LifecyclePolicy, ...] = ()
    volumes: tuple[VolumeSpec, ...] = ()
    network_topology: NetworkTopology | None = None
    tasks: tuple[TaskSpec, ...] = ()

    @property
    def replicas(self) -> int:
        return sum(task.replicas for task in self.tasks)

    @property
    def minimum(self) -> int:
        """Number of pods without which the job does not start."""
        return self.min_available if self.min_available else sum(task.minimum for task in self.tasks)

    @property
    def retries(self) -> int:
        """Number of restarts (`retry_count`) at which the job fails instead of running again."""
        return DEFAULT_MAX_RETRY if self.max_retry is None else self.max_retry

    def named_tasks(self) -> tuple[TaskSpec, ...]:
        """Return the tasks of the job; tasks without a name get `default0`, `default1`, … by position."""
        return tuple(
            task if task.name else msgspec.structs.replace(task, name=f"default{index}")
            for index, task in enumerate(self.tasks)
        )

    def task(self, name: str) -> TaskSpec | None:
        return next((task for task in self.named_tasks() if task.name == name), None)


class JobCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    status: str = ""
    last_transition_time: str | None = None


class JobState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class TaskState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Numbers of a task's pods by phase."""

    phase: dict[str, int] = {}


class JobStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Status of a Volcano Job, as the controller writes it. `version` counts restarts of the whole job,
    `retry_count` the restarts that count towards maxRetry.
    """

    state: JobState = JobState()
    min_available: int = 0
    task_status_count: dict[str, TaskState] = {}
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0
    version: int = 0
    retry_count: int = 0
    running_duration: str | None = None
    controlled_resources: dict[str, str] = {}
    conditions: tuple[JobCondition, ...] = ()

    @property
    def phase(self) -> JobPhase:
        """Phase of the job; NEW for a phase that upstream does not have."""
        try:
            return JobPhase(self.state.phase)
        except ValueError:
            return JobPhase.NEW


class Job(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    metadata: Metadata
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class JobTemplateSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Job template in a CronJob; its metadata can be incomplete."""

    metadata: dict[str, Any] = {}
    spec: JobSpec = JobSpec()


class CronJobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = "Allow"
    suspend: bool = False
    job_template: JobTemplateSpec = JobTemplateSpec()
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


class ActiveJob(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class CronJobStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    active: tuple[ActiveJob, ...] = ()
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJob(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    metadata: Metadata
    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()


class HttpGetProbe(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    task_name: str = ""
    path: str = ""
    port: int = 0
    http_header: Any = None


class TcpSocketProbe(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    task_name: str = ""
    port: int = 0


class TaskStatusProbe(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    task_name: str = ""
    phase: str = ""


class Probe(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    http_get_list: tuple[HttpGetProbe, ...] = ()
    tcp_socket_list: tuple[TcpSocketProbe, ...] = ()
    task_status_list: tuple[TaskStatusProbe, ...] = ()


class FlowDependency(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    targets: tuple[str, ...] = ()
    probe: Probe | None = None


class FlowPatch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    job_spec: dict[str, Any] | None = None


class FlowStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Step of a JobFlow: one job, created from the JobTemplate with this name."""

    name: str = ""
    depends_on: FlowDependency | None = None
    patch: FlowPatch | None = None


class JobFlowSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    flows: tuple[FlowStep, ...] = ()
    job_retain_policy: str = "retain"


class JobFlow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    metadata: Metadata
    spec: JobFlowSpec = JobFlowSpec()
    status: dict[str, Any] = {}


class JobTemplate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    metadata: Metadata
    spec: JobSpec = JobSpec()
    status: dict[str, Any] = {}


class Command(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Volcano's Command for a job or a queue, executed once."""

    metadata: Metadata
    action: str = ""
    target: OwnerReference | None = None
    reason: str = ""
    message: str = ""


_WHOLE = msgspec.json.Decoder(Job)


def decode_job(raw: bytes) -> tuple[Job, tuple[DecodingFault, ...]]:
    """Decode a Volcano Job from bytes, with a fast path for valid documents."""
    # Null counts as absent, which only the lenient decoder supports.
    if b"null" not in raw:
        try:
            job = _WHOLE.decode(raw)
        except msgspec.ValidationError:
            pass
        else:
            if job.metadata.name:
                return job, ()
    return read_job(msgspec.json.decode(raw))


def read_job(document: object) -> tuple[Job, tuple[DecodingFault, ...]]:
    """Decode a Volcano Job from JSON, and return its unreadable fields. Raise msgspec.ValidationError if it has no
    name."""
    job, faults = decode_leniently(Job, document)
    # A plugin without arguments can have the value null.
    stated = mapping(mapping(mapping(document).get("spec")).get("plugins"))
    bare = {str(name): () for name, arguments in stated.items() if arguments is None}
    if bare:
        job = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, plugins=job.spec.plugins | bare))
    return job, faults
