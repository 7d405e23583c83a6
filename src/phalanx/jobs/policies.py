"""Events of a Volcano Job, and the actions of its lifecycle policies (docs/rules/jobs.md, B5).

There is no state in memory: the events follow from the pods and the status each time, and timeouts count from
times stored in the API server. So a restarted controller decides the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from phalanx.dialects.times import parse_duration, parse_time
from phalanx.jobs.members import FAILED, PENDING, RUNNING, SUCCEEDED, JobPod
from phalanx.jobs.spec import Job, JobAction, JobEvent, LifecyclePolicy, TaskSpec

# Events that `*` matches. Internal events and updates of the job are excluded.
_ANY = frozenset(
    {
        JobEvent.POD_FAILED,
        JobEvent.POD_EVICTED,
        JobEvent.POD_PENDING,
        JobEvent.UNKNOWN,
        JobEvent.TASK_COMPLETED,
        JobEvent.TASK_FAILED,
    }
)
_EVICTED = "evicted-"
_DISRUPTED = "disrupted-"
DEFAULT_TASK_RETRY = 3


class Happening(msgspec.Struct, frozen=True):
    """Event of a job to which lifecycle policies react, since a time (seconds), about a pod, a task or the whole
    job.

    `disrupted`: the pod is evicted for a cause outside of the job, so that a restart is no retry of it.
    """

    event: JobEvent
    since: int
    task: str = ""
    pod: str = ""
    partition: str = ""
    exit_codes: tuple[int, ...] = ()
    disrupted: bool = False


class Order(msgspec.Struct, frozen=True):
    """Action that a lifecycle policy or a Command requests now, with its cause."""

    action: JobAction
    cause: Happening


class Delayed(msgspec.Struct, frozen=True):
    """Action of a lifecycle policy that becomes due at a time (seconds)."""

    action: JobAction
    due: int
    cause: Happening


def happenings(
    job: Job,
    pods: Sequence[JobPod],
    lost: Mapping[str, int],
    group_unknown_since: int | None,
    disrupted: Collection[str] = (),
) -> Iterator[Happening]:
    """Yield the current events of a job in the order in which policies handle them: pods by task and index, tasks,
    the group.

    `lost` are the names of pods that another client has deleted, with the time of their deletion; `disrupted`
    those of pods that are, or were, evicted for a cause outside of the job.
    """
    by_task: dict[str, list[JobPod]] = {}
    for pod in pods:
        by_task.setdefault(pod.task, []).append(pod)
    for task in job.spec.named_tasks():
        members = sorted(by_task.get(task.name, ()), key=lambda pod: pod.index)
        yield from _pod_events(f"{job.metadata.name}-{task.name}", task, members, lost, disrupted)
        yield from _task_events(task, members)
    if group_unknown_since is not None:
        yield Happening(JobEvent.UNKNOWN, group_unknown_since)


def _pod_events(
    prefix: str, task: TaskSpec, members: Sequence[JobPod], lost: Mapping[str, int], disrupted: Collection[str]
) -> Iterator[Happening]:
    for pod in members:
        if pod.deleting:
            continue  # `lost` contains the deletion
        if pod.phase == FAILED:
            codes = tuple(code for code in pod.exit_codes if code)
            yield Happening(
                JobEvent.POD_FAILED,
                pod.finished or pod.created,
                task.name,
                pod.name,
                pod.partition,
                codes,
                disrupted=pod.name in disrupted,
            )
        elif pod.phase == PENDING:
            yield Happening(JobEvent.POD_PENDING, pod.created, task.name, pod.name, pod.partition)
    partitions = {pod.name: pod.partition for pod in members}
    for name, since in sorted(lost.items()):
        head, _, index = name.rpartition("-")
        if head == prefix and index.isdecimal():
            partition = partitions.get(name, "")
            evicted = name in disrupted
            yield Happening(JobEvent.POD_EVICTED, since, task.name, name, partition, disrupted=evicted)


def _task_events(task: TaskSpec, members: Sequence[JobPod]) -> Iterator[Happening]:
    living = [pod for pod in members if not pod.deleting]
    succeeded = [pod for pod in living if pod.phase == SUCCEEDED]
    if task.replicas and len(succeeded) >= task.replicas:
        yield Happening(JobEvent.TASK_COMPLETED, max(pod.finished or pod.created for pod in succeeded), task.name)
    max_restarts = DEFAULT_TASK_RETRY if task.max_retry is None else task.max_retry
    restarts = sum(pod.restarts for pod in living if pod.phase in (PENDING, RUNNING))
    if max_restarts >= 0 and restarts and restarts >= max_restarts:
        yield Happening(JobEvent.TASK_FAILED, max((pod.created for pod in living), default=0), task.name)


def decide(job: Job, events: Iterable[Happening], now: int) -> Order | Delayed | None:
    """Return the first action of a lifecycle policy that is due; else the next one to become due; None if no policy
    requests any."""
    tasks = {task.name: task.policies for task in job.spec.named_tasks()}
    next_up: Delayed | None = None
    for event in events:
        for policy in (*tasks.get(event.task, ()), *job.spec.policies):
            action = _requested_action(policy, event)
            if action is None:
                continue
            due = event.since + _timeout(policy)
            if due <= now:
                return Order(action, event)
            if next_up is None or due < next_up.due:
                next_up = Delayed(action, due, event)
            break
    return next_up


def _requested_action(policy: LifecyclePolicy, happening: Happening) -> JobAction | None:
    """Return the action that a lifecycle policy requests for an event. An unknown action counts as none: admission
    reports it."""
    handled_events = policy.all_events()
    event = happening.event
    fits = event.value in handled_events or (JobEvent.ANY.value in handled_events and event in _ANY)
    if event is JobEvent.POD_PENDING and not policy.timeout:
        fits = False
    if not fits and not (policy.exit_code and policy.exit_code in happening.exit_codes):
        return None
    try:
        return JobAction(policy.action)
    except ValueError:
        return None


def _timeout(policy: LifecyclePolicy) -> int:
    if not policy.timeout:
        return 0
    try:
        return max(0, parse_duration(policy.timeout))
    except ValueError:
        return 0


def lost_pods(resources: Mapping[str, str]) -> dict[str, int]:
    """Return the pods that another client deleted and no lifecycle policy has handled yet, with the times of the
    deletions."""
    return {key[len(_EVICTED) :]: parse_time(at) for key, at in resources.items() if key.startswith(_EVICTED)}


def disrupted_pods(resources: Mapping[str, str]) -> frozenset[str]:
    """Return the lost pods that were evicted for a cause outside of the job."""
    return frozenset(key[len(_DISRUPTED) :] for key in resources if key.startswith(_DISRUPTED))


def disrupted_entry(pod: str) -> str:
    """Return the key in `controlledResources` for a lost pod that was evicted for a cause outside of the job."""
    return f"{_DISRUPTED}{pod}"


def lost_entry(pod: str) -> str:
    """Return the key in `controlledResources` of the job's status that records a pod deleted by another client."""
    return f"{_EVICTED}{pod}"
