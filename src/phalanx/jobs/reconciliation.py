"""One look at a job: its next status, and the pods that are to come and to go. Pure: nothing is remembered.

The status is to be written before anything that follows from it, so whoever looks next, after a crash too, decides
the same. Pods have names that follow from the job, so what is made twice is refused by the API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from phalanx.dialects.times import format_time, parse_time
from phalanx.jobs.dependencies import ready_tasks
from phalanx.jobs.members import FINISHED, RUNNING, JobPod, count
from phalanx.jobs.phases import ACTIVE, STARTED, advance, obey
from phalanx.jobs.policies import Delayed, Order, decide, happenings, lost_entry, lost_pods
from phalanx.jobs.restarts import leaves, restarts_under_way, without
from phalanx.jobs.spec import Job, JobCondition, JobEvent, JobPhase, JobStatus, TaskSpec
from phalanx.model.text.duration import format_duration

#: A PodGroup in one of these phases is not admitted: its pods are not made yet.
_NOT_ADMITTED = frozenset({"", "Pending"})


class JobGroup(msgspec.Struct, frozen=True):
    """The PodGroup of a job. `version` is the job's when the group was made, None where it does not say;
    `unknown_since` when it became Unknown, None if it is not."""

    name: str
    uid: str
    phase: str = ""
    version: int | None = None
    unknown_since: int | None = None

    @property
    def admitted(self) -> bool:
        return self.phase not in _NOT_ADMITTED


class JobWorld(msgspec.Struct, frozen=True):
    """What there is, at a moment (seconds). `orders` are those of Commands that are not carried out yet."""

    job: Job
    pods: tuple[JobPod, ...]
    group: JobGroup | None
    now: int
    orders: tuple[Order, ...] = ()


class JobPlan(msgspec.Struct, frozen=True):
    """What is to be. `wanted` are pods that should exist and do not, task by task and by index. `wake_at` is when
    to look again though nothing changes, in seconds."""

    status: JobStatus
    to_delete: tuple[JobPod, ...] = ()
    wanted: tuple[tuple[TaskSpec, int], ...] = ()
    keep_group: bool = True
    waiting_tasks: tuple[str, ...] = ()
    order: Order | None = None
    delayed: Delayed | None = None

    @property
    def wake_at(self) -> int | None:
        return self.delayed.due if self.delayed is not None else None


def plan(world: JobWorld) -> JobPlan:
    """How a job goes on. At most one order is carried out at a time; after it one looks again."""
    job, now = world.job, world.now
    status = job.status
    going = _leaving(job, status, world.pods)
    staying = [pod for pod in world.pods if pod.name not in going]
    lost = _lost(job, staying) | lost_pods(status.controlled_resources)
    for name in lost:
        lost[name] = lost[name] or now
    for pod in staying:
        if pod.phase == RUNNING and not pod.deleting:
            lost.pop(pod.name, None)
    counted = _counted(status, world.pods, going)

    order: Order | None = next(iter(world.orders), None)
    delayed: Delayed | None = None
    if order is None and status.phase in STARTED:
        unknown_since = world.group.unknown_since if world.group is not None else None
        answer = decide(job, happenings(job, staying, lost, unknown_since), now)
        if isinstance(answer, Order):
            order = answer
        else:
            delayed = answer
    changed = obey(counted, order) if order is not None else counted
    if changed is counted:
        order = None
        changed = advance(job, counted)
    if changed.phase is not counted.phase or order is not None:
        going = _leaving(job, changed, world.pods)
        changed = _counted(changed, world.pods, going)
    changed = _record(job, changed, world.pods, lost if delayed is not None and order is None else {})
    changed = _dated(job, changed, now)

    active = changed.phase in ACTIVE
    ready = ready_tasks(job, staying) if active else {}
    waiting = tuple(task.name for task in job.spec.named_tasks() if task.name not in ready) if active else ()
    wanted: tuple[tuple[TaskSpec, int], ...] = ()
    # Once pods were made, those that are missing are made again though the group should wait again.
    begun = any(pod.version == changed.version for pod in staying)
    group = world.group if world.group is not None and not outdated(changed, world.group) else None
    if active and group is not None and (group.admitted or begun):
        names = {pod.name for pod in world.pods}
        wanted = tuple(
            (task, index)
            for task in ready.values()
            for index in range(task.replicas)
            if f"{job.metadata.name}-{task.name}-{index}" not in names
        )
    return JobPlan(
        status=changed,
        to_delete=tuple(pod for pod in world.pods if pod.name in going and not pod.deleting),
        wanted=wanted,
        keep_group=active,
        waiting_tasks=waiting,
        order=order,
        delayed=delayed,
    )


def outdated(status: JobStatus, group: JobGroup) -> bool:
    """Whether a group belongs to an earlier run of the whole job."""
    return group.version is not None and group.version < status.version


def _leaving(job: Job, status: JobStatus, pods: Iterable[JobPod]) -> set[str]:
    """Names of pods that go, or are on their way, because the job wants it."""
    replicas = {task.name: task.replicas for task in job.spec.named_tasks()}
    restarts = restarts_under_way(status.controlled_resources)
    last_try = status.retry_count >= job.spec.retries
    stopped = status.phase not in ACTIVE and status.phase is not JobPhase.NEW
    return {
        pod.name
        for pod in pods
        if not 0 <= pod.index < replicas.get(pod.task, 0)
        or leaves(pod, restarts, last_try=last_try)
        or (pod.phase not in FINISHED and (stopped or pod.version < status.version))
    }


def _counted(status: JobStatus, pods: Sequence[JobPod], going: set[str]) -> JobStatus:
    """Pods that go are terminating, also before their deletion is asked for."""
    return count(status, (replace(pod, deleting=True) if pod.name in going else pod for pod in pods))


def _lost(job: Job, staying: Sequence[JobPod]) -> dict[str, int]:
    """Pods that somebody else deletes or has deleted, each with the moment 0 if it is not known.

    A pod that is gone is missed where the status has counted more pods of its task than there are.
    """
    lost = {pod.name: 0 for pod in staying if pod.deleting}
    for task in job.spec.named_tasks():
        counts = job.status.task_status_count.get(task.name)
        if counts is None:
            continue
        present = {pod.index for pod in staying if pod.task == task.name}
        living = sum(1 for pod in staying if pod.task == task.name and not pod.deleting)
        deleting = len(present) - living
        missing = [index for index in range(task.replicas) if index not in present]
        gone = sum(counts.phase.values()) - living - deleting
        for index in missing[: max(0, gone)]:
            lost[f"{job.metadata.name}-{task.name}-{index}"] = 0
    return lost


def _record(job: Job, status: JobStatus, pods: Sequence[JobPod], lost: dict[str, int]) -> JobStatus:
    """Forgets restarts that are over, and keeps in mind losses for which a policy will answer later."""
    resources = status.controlled_resources
    under_way = restarts_under_way(resources)
    if status.phase is not JobPhase.RESTARTING:
        over = [each for each in under_way if not any(each.concerns(pod) for pod in pods)]
        resources = without(resources, over)
    kept = {key: value for key, value in resources.items() if not key.startswith(lost_entry(""))}
    if any(JobEvent.POD_EVICTED.value in events or JobEvent.ANY.value in events for events in _policies(job)):
        kept |= {lost_entry(name): format_time(at) for name, at in sorted(lost.items())}
    return status if kept == status.controlled_resources else replace(status, controlled_resources=kept)


def _policies(job: Job) -> Iterable[tuple[str, ...]]:
    for policies in (job.spec.policies, *(task.policies for task in job.spec.tasks)):
        for policy in policies:
            yield policy.all_events()


def _dated(job: Job, status: JobStatus, now: int) -> JobStatus:
    """A new phase has its moment, and is the last condition."""
    status = replace(status, min_available=job.spec.minimum)
    if status.phase is job.status.phase and status.version == job.status.version:
        return status
    at = format_time(now)
    state = replace(status.state, last_transition_time=at)
    others = tuple(each for each in status.conditions if each.status != state.phase)
    ran = max(0, now - parse_time(job.metadata.creation_timestamp))
    return replace(
        status,
        state=state,
        conditions=(*others, JobCondition(status=state.phase, last_transition_time=at)),
        running_duration=status.running_duration if status.phase in ACTIVE else format_duration(ran),
    )
