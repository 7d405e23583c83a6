"""Which tasks of a job may have pods yet: `dependsOn` (docs/rules/jobs.md, B6)."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.jobs.members import RUNNING, SUCCEEDED, JobPod
from phalanx.jobs.spec import Job, TaskSpec


def ready_tasks(job: Job, pods: Sequence[JobPod]) -> dict[str, TaskSpec]:
    """Tasks whose pods may be made, by name: those that depend on nobody, on ready ones, or have pods already.

    A task on which another depends is ready when as many of its pods as its minimum run with all containers ready,
    or have succeeded.
    """
    tasks = {task.name: task for task in job.spec.named_tasks()}
    arrived = dict.fromkeys(tasks, 0)
    begun = set()
    for pod in pods:
        if pod.task in arrived and not pod.deleting:
            begun.add(pod.task)
            if pod.phase == SUCCEEDED or (pod.phase == RUNNING and pod.ready):
                arrived[pod.task] += 1

    def may_start(task: TaskSpec) -> bool:
        names = task.depends_on.name if task.depends_on is not None else ()
        if not names or task.name in begun:
            return True
        met = [name in tasks and arrived[name] >= tasks[name].minimum for name in names]
        either = task.depends_on is not None and task.depends_on.iteration == "any" and len(names) > 1
        return any(met) if either else all(met)

    return {name: task for name, task in tasks.items() if may_start(task)}
