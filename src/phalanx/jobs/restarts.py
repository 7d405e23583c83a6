"""Which pods a restart takes away, remembered in the job's status until they are gone.

A restart is decided once and carried out in many writes, between which the controller may die. So the decision is
written first: the retry count goes up, and `controlledResources` says under `restart-<count>` whom it concerns. A
pod carries the retry count at its creation, so whom a restart concerns is never asked of those who came after it,
and the same failure is not counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from phalanx.jobs.members import FINISHED, JobPod
from phalanx.jobs.spec import JobAction
from phalanx.model.text.decoding import parse_whole

_PREFIX = "restart-"
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
    """The `number`-th restart, of the whole job or of one task, pod or partition of a task."""

    number: int
    scope: JobAction
    task: str = ""
    name: str = ""

    def concerns(self, pod: JobPod) -> bool:
        """Whether the pod goes with it."""
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
        """Key and value in `controlledResources`."""
        return f"{_PREFIX}{self.number}", "/".join(filter(None, (self.scope.value, self.task, self.name)))


def restarts_under_way(resources: Mapping[str, str]) -> tuple[Restart, ...]:
    """Those that the status remembers, the first one first. What cannot be read is no restart."""
    found = []
    for key, value in resources.items():
        number = parse_whole(key[len(_PREFIX) :], 1) if key.startswith(_PREFIX) else None
        scope, _, rest = value.partition("/")
        task, _, name = rest.partition("/")
        if number is not None and scope in _SCOPES:
            found.append(Restart(number, _SCOPES[scope], task, name))
    return tuple(sorted(found, key=lambda restart: restart.number))


def without(resources: Mapping[str, str], done: Iterable[Restart]) -> dict[str, str]:
    """What the status remembers when these restarts are over."""
    keys = {restart.entry()[0] for restart in done}
    return {key: value for key, value in resources.items() if key not in keys}


def leaves(pod: JobPod, restarts: Iterable[Restart], *, last_try: bool) -> bool:
    """Whether a restart takes the pod away. On the last try what has finished stays, so that it can be read."""
    return any(
        restart.concerns(pod)
        and not (last_try and restart.scope is JobAction.RESTART_JOB and pod.phase in FINISHED)
        for restart in restarts
    )
