"""Pods of a Volcano Job as its controller sees them, and their counts by phase."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.dialects.core import Metadata, Wire
from phalanx.dialects.times import parse_time
from phalanx.jobs.spec import BATCH, JobStatus, TaskState
from phalanx.model.text.decoding import parse_whole

JOB_KIND = "Job"
TASK_SPEC = "volcano.sh/task-spec"
TASK_INDEX = "volcano.sh/task-index"
JOB_NAME = "volcano.sh/job-name"
JOB_VERSION = "volcano.sh/job-version"
RETRY_COUNT = "volcano.sh/job-retry-count"
PARTITION = "volcano.sh/partition-id"

#: Reason of the condition DisruptionTarget at restarts of a group (controllers/groups).
GROUP_RESTART = "GroupRestart"

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
FINISHED = frozenset({SUCCEEDED, FAILED})


class _Terminated(Wire):
    exit_code: int = 0
    finished_at: str | None = None


class _ContainerState(Wire):
    terminated: _Terminated | None = None


class _ContainerStatus(Wire):
    ready: bool = False
    restart_count: int = 0
    state: _ContainerState = msgspec.field(default_factory=_ContainerState)


class _Condition(Wire):
    type: str = ""
    status: str = ""
    reason: str = ""

    @property
    def is_disruption(self) -> bool:
        """Whether the pod is evicted for a cause outside of its job. A group restart follows a failure of it."""
        return self.type == "DisruptionTarget" and self.status == "True" and self.reason != GROUP_RESTART


class _PodStatus(Wire):
    phase: str = PENDING
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()


class _PodSpec(Wire):
    node_name: str = ""


class _Pod(Wire):
    metadata: Metadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class JobPod(msgspec.Struct, frozen=True, kw_only=True):
    """Pod of a Volcano Job.

    `retry` and `version` are those of the job at the pod's creation; times are in seconds, 0 if unknown.
    `exit_codes` are those of all ended containers, init containers first. `disrupted`: it is evicted for a cause
    outside of the job, such as a preemption.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner: str
    task: str
    index: int
    phase: str
    deleting: bool = False
    bound: bool = False
    ready: bool = False
    version: int = 0
    retry: int = 0
    restarts: int = 0
    partition: str = ""
    exit_codes: tuple[int, ...] = ()
    created: int = 0
    finished: int = 0
    disrupted: bool = False

    @property
    def alive(self) -> bool:
        """Whether the pod has not finished."""
        return self.phase not in FINISHED


_DECODER = msgspec.json.Decoder(_Pod, strict=False)


def read_pod(raw: bytes) -> JobPod | None:
    """Decode a pod that a Volcano Job controls; return None for other pods. Raise msgspec.DecodeError for other
    objects than pods."""
    pod = _DECODER.decode(raw)
    metadata = pod.metadata
    owner = next((owner for owner in metadata.owner_references if owner.controller), None)
    if owner is None or owner.kind != JOB_KIND or not owner.api_version.startswith(f"{BATCH}/"):
        return None
    notes, labels = metadata.annotations, metadata.labels
    statuses = [*pod.status.init_container_statuses, *pod.status.container_statuses]
    ended = [status.state.terminated for status in statuses if status.state.terminated is not None]
    mains = pod.status.container_statuses
    return JobPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        owner=owner.uid,
        task=notes.get(TASK_SPEC) or labels.get(TASK_SPEC, ""),
        index=_number(notes.get(TASK_INDEX) or labels.get(TASK_INDEX) or metadata.name.rpartition("-")[2], -1),
        phase=pod.status.phase,
        deleting=metadata.deletion_timestamp is not None,
        bound=bool(pod.spec.node_name),
        ready=bool(mains) and all(status.ready for status in mains),
        version=_number(notes.get(JOB_VERSION), 0),
        retry=_number(notes.get(RETRY_COUNT), 0),
        restarts=sum(status.restart_count for status in statuses),
        partition=labels.get(PARTITION, ""),
        exit_codes=tuple(end.exit_code for end in ended),
        created=parse_time(metadata.creation_timestamp),
        finished=max((parse_time(end.finished_at) for end in ended), default=0),
        disrupted=any(condition.is_disruption for condition in pod.status.conditions),
    )


def _number(text: str | None, default: int) -> int:
    number = parse_whole(text) if text else None
    return default if number is None or number < 0 else number


def count(status: JobStatus, pods: Iterable[JobPod]) -> JobStatus:
    """Return the job's status with the numbers of these pods by phase and task."""
    totals = dict.fromkeys(("pending", "running", "succeeded", "failed", "terminating", "unknown"), 0)
    tasks: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.deleting:
            totals["terminating"] += 1
            continue
        word = pod.phase.lower()
        totals[word if word in totals and word != "terminating" else "unknown"] += 1
        phases = tasks.setdefault(pod.task, {})
        phases[pod.phase] = phases.get(pod.phase, 0) + 1
    by_task = {task: TaskState(phase=dict(sorted(phases.items()))) for task, phases in sorted(tasks.items())}
    return msgspec.structs.replace(status, **totals, task_status_count=by_task)
