"""What has happened to a job, and what its policies ask for then (docs/rules/jobs.md, B5).

Nothing is remembered in memory: what happened is read off the pods and the status each time, and a timeout counts
from a moment that the API server keeps. So a controller that starts anew comes to the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from phalanx.dialects.times import parse_duration, parse_time
from phalanx.jobs.members import FAILED, PENDING, RUNNING, SUCCEEDED, JobPod
from phalanx.jobs.spec import Job, JobAction, JobEvent, LifecyclePolicy, TaskSpec

# What `*` stands for. Internal events and updates of the job are not among them.
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
DEFAULT_TASK_RETRY = 3


class Happening(msgspec.Struct, frozen=True):
    """Something that policies react to, since a moment (seconds), to a pod, a task or the whole job."""

    event: JobEvent
    since: int
    task: str = ""
    pod: str = ""
    partition: str = ""
    exit_codes: tuple[int, ...] = ()


class Order(msgspec.Struct, frozen=True):
    """An action that is due, and what it is aimed at."""

    action: JobAction
    cause: Happening


class Delayed(msgspec.Struct, frozen=True):
    """An action that becomes due at a moment (seconds)."""

    action: JobAction
    due: int
    cause: Happening


def happenings(
    job: Job, pods: Sequence[JobPod], lost: Mapping[str, int], group_unknown_since: int | None
) -> Iterator[Happening]:
    """What is the case, in the order in which policies are asked: pods by task and index, tasks, the group.

    `lost` are names of pods that somebody else has deleted, with the moments when they went.
    """
    by_task: dict[str, list[JobPod]] = {}
    for pod in pods:
        by_task.setdefault(pod.task, []).append(pod)
    for task in job.spec.named_tasks():
        members = sorted(by_task.get(task.name, ()), key=lambda pod: pod.index)
        yield from _pod_events(f"{job.metadata.name}-{task.name}", task, members, lost)
        yield from _task_events(task, members)
    if group_unknown_since is not None:
        yield Happening(JobEvent.UNKNOWN, group_unknown_since)


def _pod_events(
    prefix: str, task: TaskSpec, members: Sequence[JobPod], lost: Mapping[str, int]
) -> Iterator[Happening]:
    for pod in members:
        if pod.deleting:
            continue  # told by `lost`
        if pod.phase == FAILED:
            codes = tuple(code for code in pod.exit_codes if code)
            yield Happening(
                JobEvent.POD_FAILED, pod.finished or pod.created, task.name, pod.name, pod.partition, codes
            )
        elif pod.phase == PENDING:
            yield Happening(JobEvent.POD_PENDING, pod.created, task.name, pod.name, pod.partition)
    partitions = {pod.name: pod.partition for pod in members}
    for name, since in sorted(lost.items()):
        head, _, index = name.rpartition("-")
        if head == prefix and index.isdecimal():
            yield Happening(JobEvent.POD_EVICTED, since, task.name, name, partitions.get(name, ""))


def _task_events(task: TaskSpec, members: Sequence[JobPod]) -> Iterator[Happening]:
    living = [pod for pod in members if not pod.deleting]
    done = [pod for pod in living if pod.phase == SUCCEEDED]
    if task.replicas and len(done) >= task.replicas:
        yield Happening(JobEvent.TASK_COMPLETED, max(pod.finished or pod.created for pod in done), task.name)
    most = DEFAULT_TASK_RETRY if task.max_retry is None else task.max_retry
    restarts = sum(pod.restarts for pod in living if pod.phase in (PENDING, RUNNING))
    if most >= 0 and restarts and restarts >= most:
        yield Happening(JobEvent.TASK_FAILED, max((pod.created for pod in living), default=0), task.name)


def decide(job: Job, what: Iterable[Happening], now: int) -> Order | Delayed | None:
    """The first action that is due; else the one that will be due first; None if no policy asks for any."""
    tasks = {task.name: task.policies for task in job.spec.named_tasks()}
    next_up: Delayed | None = None
    for each in what:
        for policy in (*tasks.get(each.task, ()), *job.spec.policies):
            action = _answer(policy, each)
            if action is None:
                continue
            due = each.since + _timeout(policy)
            if due <= now:
                return Order(action, each)
            if next_up is None or due < next_up.due:
                next_up = Delayed(action, due, each)
            break
    return next_up


def _answer(policy: LifecyclePolicy, what: Happening) -> JobAction | None:
    """The action that a policy asks for. One with an unknown action asks for none: admission names it."""
    asked = policy.all_events()
    fits = what.event.value in asked or (JobEvent.ANY.value in asked and what.event in _ANY)
    if what.event is JobEvent.POD_PENDING and not policy.timeout:
        fits = False
    if not fits and not (policy.exit_code and policy.exit_code in what.exit_codes):
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
    """Pods that were deleted by somebody else and that no policy has answered for yet, with the moments."""
    return {key[len(_EVICTED) :]: parse_time(at) for key, at in resources.items() if key.startswith(_EVICTED)}


def lost_entry(pod: str) -> str:
    """The key in `controlledResources` under which the loss of a pod is remembered."""
    return f"{_EVICTED}{pod}"
