"""Plan of a Volcano Job: its next status, and the pods to create and delete. No state is kept between plans.

The status is written before all other steps, so the next reconciliation decides the same even after a crash. The
names of pods follow from the job, so the API server rejects duplicates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from phalanx.dialects.times import format_time, parse_time
from phalanx.jobs.dependencies import ready_tasks
from phalanx.jobs.members import FINISHED, RUNNING, JobPod, count
from phalanx.jobs.phases import ACTIVE, STARTED, advance, apply_order
from phalanx.jobs.policies import (
    Delayed,
    Order,
    decide,
    disrupted_entry,
    disrupted_pods,
    happenings,
    lost_entry,
    lost_pods,
)
from phalanx.jobs.restarts import is_restarted, restarts_under_way, without_restarts
from phalanx.jobs.spec import Job, JobAction, JobCondition, JobEvent, JobPhase, JobStatus, TaskSpec
from phalanx.model.text.duration import format_duration

#: Phases of a PodGroup that is not admitted: its pods are not created yet.
_NOT_ADMITTED = frozenset({"", "Pending"})


class JobGroup(msgspec.Struct, frozen=True):
    """PodGroup of a Volcano Job.

    `version` is the job's version at the creation of the group, None if unknown; `unknown_since` is the time at
    which the group's phase became Unknown, None in other phases. With `withdrawn` its admission was withdrawn.
    """

    name: str
    uid: str
    phase: str = ""
    version: int | None = None
    unknown_since: int | None = None
    withdrawn: bool = False

    @property
    def admitted(self) -> bool:
        return self.phase not in _NOT_ADMITTED

    @property
    def sends_pods_back(self) -> bool:
        """Whether the pods of the group that have no node are to be deleted."""
        return self.withdrawn and not self.admitted


class JobWorld(msgspec.Struct, frozen=True):
    """Observed state of a Volcano Job at a time (seconds).

    `orders` are the actions of Commands that are not executed yet; `disrupted` are names of deleted pods that were
    evicted for a cause outside of the job.
    """

    job: Job
    pods: tuple[JobPod, ...]
    group: JobGroup | None
    now: int
    orders: tuple[Order, ...] = ()
    disrupted: frozenset[str] = frozenset()


class JobPlan(msgspec.Struct, frozen=True):
    """Next steps of a Volcano Job: its status, and the pods to create and delete.

    `wanted` are the missing pods, by task and index. `wake_at` is the time of the next reconciliation without a
    change, in seconds.
    """

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
    """Return the next steps of a job. At most one action is executed per plan."""
    job, now = world.job, world.now
    status = job.status
    going = _leaving(job, status, world.pods, world.group)
    staying = [pod for pod in world.pods if pod.name not in going]
    lost = _lost(job, staying) | lost_pods(status.controlled_resources)
    sends_back = world.group is not None and world.group.sends_pods_back
    if sends_back:
        # The job has deleted its own pods without a node: they are no failures.
        on_nodes = {pod.name for pod in staying if pod.bound}
        lost = {name: at for name, at in lost.items() if name in on_nodes}
    for name in lost:
        lost[name] = lost[name] or now
    for pod in staying:
        if pod.phase == RUNNING and not pod.deleting:
            lost.pop(pod.name, None)
    disrupted = world.disrupted | disrupted_pods(status.controlled_resources)
    disrupted |= {pod.name for pod in staying if pod.disrupted}
    counted = _counted(status, world.pods, going)

    order: Order | None = next(iter(world.orders), None)
    delayed: Delayed | None = None
    if order is None and status.phase in STARTED:
        unknown_since = world.group.unknown_since if world.group is not None else None
        answer = decide(job, happenings(job, staying, lost, unknown_since, disrupted), now)
        if isinstance(answer, Order):
            order = _judged(answer, staying)
        else:
            delayed = answer
    changed = apply_order(counted, order) if order is not None else counted
    if changed is counted:
        order = None
        changed = advance(job, counted)
    if changed.phase is not counted.phase or order is not None:
        going = _leaving(job, changed, world.pods, world.group)
        changed = _counted(changed, world.pods, going)
    changed = _record(job, changed, world.pods, lost if delayed is not None and order is None else {}, disrupted)
    changed = _dated(job, changed, now)

    active = changed.phase in ACTIVE
    ready = ready_tasks(job, staying) if active else {}
    waiting = tuple(task.name for task in job.spec.named_tasks() if task.name not in ready) if active else ()
    wanted: tuple[tuple[TaskSpec, int], ...] = ()
    # Once the run has pods, missing pods are created even if the group waits again.
    begun = not sends_back and any(pod.version == changed.version for pod in staying)
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
    """Return whether a PodGroup belongs to an earlier version of the job, before its last whole restart."""
    return group.version is not None and group.version < status.version


def _leaving(job: Job, status: JobStatus, pods: Iterable[JobPod], group: JobGroup | None) -> set[str]:
    """Return the names of the pods that the job itself deletes or has deleted."""
    replicas = {task.name: task.replicas for task in job.spec.named_tasks()}
    restarts = restarts_under_way(status.controlled_resources)
    last_try = 0 < status.retry_count >= job.spec.retries
    sent_back = group is not None and group.sends_pods_back
    stopped = status.phase not in ACTIVE and status.phase is not JobPhase.NEW
    return {
        pod.name
        for pod in pods
        if not 0 <= pod.index < replicas.get(pod.task, 0)
        or is_restarted(pod, restarts, last_try=last_try)
        or (pod.phase not in FINISHED and (stopped or pod.version < status.version))
        or (sent_back and pod.alive and not pod.bound)
    }


def _counted(status: JobStatus, pods: Sequence[JobPod], going: set[str]) -> JobStatus:
    """Return the job's status with pod counts in which pods to be deleted are terminating already."""
    return count(status, (replace(pod, deleting=True) if pod.name in going else pod for pod in pods))


def _lost(job: Job, staying: Sequence[JobPod]) -> dict[str, int]:
    """Return the job's pods that another client deletes or has deleted, with the time 0 if it is unknown.

    A deleted pod is detected because the status counts more pods of its task than exist.
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
        missing_count = sum(counts.phase.values()) - living - deleting
        for index in missing[: max(0, missing_count)]:
            lost[f"{job.metadata.name}-{task.name}-{index}"] = 0
    return lost


def _judged(order: Order, staying: Sequence[JobPod]) -> Order:
    """Return the order. A restart of the whole job while one of its pods is evicted follows from that eviction,
    also if the failure of another pod is noticed first.
    """
    if order.action is not JobAction.RESTART_JOB or not any(pod.disrupted for pod in staying):
        return order
    return replace(order, cause=replace(order.cause, disrupted=True))


def _record(
    job: Job, status: JobStatus, pods: Sequence[JobPod], lost: dict[str, int], disrupted: Collection[str]
) -> JobStatus:
    """Drop finished restarts from the job's status, and record pods deleted by other clients that a policy handles
    later."""
    resources = status.controlled_resources
    under_way = restarts_under_way(resources)
    if status.phase is not JobPhase.RESTARTING:
        finished = [restart for restart in under_way if not any(restart.concerns(pod) for pod in pods)]
        resources = without_restarts(resources, finished)
    entries = (lost_entry(""), disrupted_entry(""))
    resources_to_keep = {key: value for key, value in resources.items() if not key.startswith(entries)}
    if any(JobEvent.POD_EVICTED.value in events or JobEvent.ANY.value in events for events in _policies(job)):
        resources_to_keep |= {lost_entry(name): format_time(at) for name, at in sorted(lost.items())}
        resources_to_keep |= {disrupted_entry(name): "" for name in sorted(lost) if name in disrupted}
    return (
        status
        if resources_to_keep == status.controlled_resources
        else replace(status, controlled_resources=resources_to_keep)
    )


def _policies(job: Job) -> Iterable[tuple[str, ...]]:
    for policies in (job.spec.policies, *(task.policies for task in job.spec.tasks)):
        for policy in policies:
            yield policy.all_events()


def _dated(job: Job, status: JobStatus, now: int) -> JobStatus:
    """Return the job's status with the time of a new phase, which becomes the last condition."""
    status = replace(status, min_available=job.spec.minimum)
    if status.phase is job.status.phase and status.version == job.status.version:
        return status
    at = format_time(now)
    state = replace(status.state, last_transition_time=at)
    other_conditions = tuple(condition for condition in status.conditions if condition.status != state.phase)
    ran = max(0, now - parse_time(job.metadata.creation_timestamp))
    return replace(
        status,
        state=state,
        conditions=(*other_conditions, JobCondition(status=state.phase, last_transition_time=at)),
        running_duration=status.running_duration if status.phase in ACTIVE else format_duration(ran),
    )
