"""State machine of a Volcano Job: the next phase for a phase and an action (docs/rules/volcano.md, 1.3;
docs/rules/jobs.md, B4).

Two differences to upstream: a resume is no retry, and a restarting job accepts abort, completion and termination.
"""

from __future__ import annotations

from msgspec.structs import replace

from phalanx.jobs.policies import Order
from phalanx.jobs.restarts import Restart, restarts_begun, with_restart
from phalanx.jobs.spec import Job, JobAction, JobPhase, JobStatus

P = JobPhase

STARTED = frozenset({P.PENDING, P.RUNNING})
#: Phases in which the job's pods are created and not deleted.
ACTIVE = STARTED | {P.RESTARTING}
#: Phases in which running pods are deleted and finished pods remain.
ENDED = frozenset({P.COMPLETED, P.FAILED, P.TERMINATED})

_STOPS = {
    JobAction.ABORT_JOB: P.ABORTING,
    JobAction.TERMINATE_JOB: P.TERMINATING,
    JobAction.COMPLETE_JOB: P.COMPLETING,
}
_STOPPED = {P.ABORTING: P.ABORTED, P.TERMINATING: P.TERMINATED, P.COMPLETING: P.COMPLETED}
_RESTARTS = frozenset(
    {JobAction.RESTART_JOB, JobAction.RESTART_TASK, JobAction.RESTART_POD, JobAction.RESTART_PARTITION}
)


def apply_order(status: JobStatus, order: Order) -> JobStatus:
    """Return the job's status after an action; the same object if the job's phase does not accept the action."""
    action, phase = order.action, status.phase
    if action is JobAction.RESUME_JOB:
        return _new_version(status, P.RESTARTING) if phase in (P.ABORTING, P.ABORTED) else status
    if action in _STOPS and phase in ACTIVE:
        return _new_version(status, _STOPS[action])
    if action not in _RESTARTS or phase not in STARTED:
        return status
    cause = order.cause
    name = cause.partition if action is JobAction.RESTART_PARTITION else cause.pod
    target = "" if action is JobAction.RESTART_JOB else cause.task
    aimed = name if action in (JobAction.RESTART_POD, JobAction.RESTART_PARTITION) else ""
    if (action is not JobAction.RESTART_JOB and not target) or (
        action in (JobAction.RESTART_POD, JobAction.RESTART_PARTITION) and not aimed
    ):
        return status  # a group's event has no pod or task to restart
    restart = Restart(restarts_begun(status) + 1, action, target, aimed)
    changed = with_restart(status, restart, retry=not cause.disrupted)
    if action is JobAction.RESTART_JOB:
        return _new_version(changed, P.RESTARTING)
    return _phase(changed, P.RESTARTING)


def advance(job: Job, status: JobStatus) -> JobStatus:
    """Return the job's status that follows from its pod counts, without an action of a policy or Command."""
    phase = status.phase
    if phase is P.NEW:
        return _phase(status, P.PENDING)
    if phase is P.PENDING:
        arrived = status.running + status.succeeded + status.failed
        return _phase(status, P.RUNNING) if job.spec.replicas and job.spec.minimum <= arrived else status
    if phase is P.RUNNING:
        outcome = _outcome(job, status) or P.RUNNING
        if outcome is P.FAILED:
            message = f"{status.succeeded} of {job.spec.replicas} pods succeeded, {status.failed} failed"
            return _failed(status, "PodsFailed", message)
        return _phase(status, outcome)
    if phase is P.RESTARTING:
        if status.retry_count and status.retry_count >= job.spec.retries:
            reached = f"retry limit reached: maxRetry is {job.spec.retries}"
            return _failed(status, "RetryLimitReached", reached)
        enough = job.spec.replicas - status.terminating >= job.spec.minimum
        return _phase(status, P.PENDING) if enough else status
    alive = status.pending + status.running + status.terminating + status.unknown
    if phase in _STOPPED and not alive:
        return _phase(status, _STOPPED[phase])
    return status


def _outcome(job: Job, status: JobStatus) -> JobPhase | None:
    """Return the final phase of a running job that its pod counts imply; None while it continues to run."""
    spec = job.spec
    if not spec.replicas:
        return None  # scaled to zero: it can be scaled up again
    if spec.min_success is not None and status.succeeded >= spec.min_success:
        return P.COMPLETED
    if status.succeeded + status.failed == spec.replicas:
        if spec.minimum >= sum(task.minimum for task in spec.tasks):
            for task in spec.named_tasks():
                counts = status.task_status_count.get(task.name)
                if counts is not None and counts.phase.get("Succeeded", 0) < task.minimum:
                    return P.FAILED
        if spec.min_success is not None:
            return P.FAILED
        return P.COMPLETED if status.succeeded >= spec.minimum else P.FAILED
    if status.pending > spec.replicas - spec.minimum:
        return P.PENDING
    return None


def _phase(status: JobStatus, phase: JobPhase) -> JobStatus:
    if status.phase is phase:
        return status
    return replace(status, state=replace(status.state, phase=phase.value, reason="", message=""))


def _failed(status: JobStatus, reason: str, message: str) -> JobStatus:
    return replace(status, state=replace(status.state, phase=P.FAILED.value, reason=reason, message=message))


def _new_version(status: JobStatus, phase: JobPhase) -> JobStatus:
    return _phase(replace(status, version=status.version + 1), phase)
