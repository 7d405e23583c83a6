"""Restarts of a Volcano Job: the pods that a restart deletes, recorded in the job's status until they are deleted.

A restart is decided once and executed in many writes, and the controller can die in between. So the decision is
written first: the number of restarts increases, and `controlledResources` contains its target under
`restart-<number>`. A pod has the number at its creation, so a restart never affects later pods, and a failure is
not counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from phalanx.jobs.members import FINISHED, JobPod
from phalanx.jobs.spec import JobAction, JobStatus
from phalanx.model.text.decoding import parse_whole

_PREFIX = "restart-"
# Entry of controlledResources: number of restarts after a disruption, which are no retries.
_UNCOUNTED = "preempted-restarts"
_SCOPES = {
    scope.value: scope
    for scope in (
        JobAction.RESTART_JOB,
        JobAction.RESTART_TASK,
        JobAction.RESTART_POD,
        JobAction.RESTART_PARTITION,
    )
}


class Restart(msgspec.Struct, frozen=True):
    """Restart of a whole job or of one task, pod or partition of a task, with its `number`."""

    number: int
    scope: JobAction
    task: str = ""
    name: str = ""

    def concerns(self, pod: JobPod) -> bool:
        """Return whether the restart deletes the pod."""
        if pod.retry >= self.number:
            return False
        if self.scope is JobAction.RESTART_JOB:
            return True
        if pod.task != self.task:
            return False
        if self.scope is JobAction.RESTART_TASK:
            return True
        return (pod.name if self.scope is JobAction.RESTART_POD else pod.partition) == self.name

    def entry(self) -> tuple[str, str]:
        """Return key and value of the restart in `controlledResources` of the job's status."""
        return f"{_PREFIX}{self.number}", "/".join(filter(None, (self.scope.value, self.task, self.name)))


def restarts_begun(status: JobStatus) -> int:
    """Return the number of all restarts: the retries, and the restarts after a disruption."""
    return status.retry_count + _uncounted(status)


def with_restart(status: JobStatus, restart: Restart, *, retry: bool) -> JobStatus:
    """Return the status with a new restart. Without `retry` it does not count towards maxRetry."""
    key, value = restart.entry()
    resources = {**status.controlled_resources, key: value}
    if retry:
        return replace(status, retry_count=status.retry_count + 1, controlled_resources=resources)
    return replace(status, controlled_resources={**resources, _UNCOUNTED: str(_uncounted(status) + 1)})


def _uncounted(status: JobStatus) -> int:
    return parse_whole(status.controlled_resources.get(_UNCOUNTED, "0")) or 0


def restarts_under_way(resources: Mapping[str, str]) -> tuple[Restart, ...]:
    """Return the restarts that the job's status records, in order. Unreadable entries are ignored."""
    restarts = []
    for key, value in resources.items():
        number = parse_whole(key[len(_PREFIX) :], 1) if key.startswith(_PREFIX) else None
        scope, _, target = value.partition("/")
        task, _, name = target.partition("/")
        if number is not None and scope in _SCOPES:
            restarts.append(Restart(number, _SCOPES[scope], task, name))
    return tuple(sorted(restarts, key=lambda restart: restart.number))


def without_restarts(resources: Mapping[str, str], done: Iterable[Restart]) -> dict[str, str]:
    """Return the status entries of `controlledResources` without the restarts in `done`."""
    keys = {restart.entry()[0] for restart in done}
    return {key: value for key, value in resources.items() if key not in keys}


def is_restarted(pod: JobPod, restarts: Iterable[Restart], *, last_try: bool) -> bool:
    """Return whether one of the restarts deletes the pod. On the last try, finished pods remain, so that users can
    read their logs."""
    return any(restart.concerns(pod) and not (last_try and pod.phase in FINISHED) for restart in restarts)
