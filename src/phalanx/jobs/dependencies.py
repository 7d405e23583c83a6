"""Task dependencies of a job: tasks that can have pods now (`dependsOn`, see docs/rules/jobs.md, B6)."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.jobs.members import RUNNING, SUCCEEDED, JobPod
from phalanx.jobs.spec import Job, TaskSpec


def ready_tasks(job: Job, pods: Sequence[JobPod]) -> dict[str, TaskSpec]:
    """Return the tasks of a job that can have pods, by name: without dependencies, with ready dependencies, or with
    existing pods.

    A dependency is ready when at least its minimum of pods run with all containers ready, or have succeeded.
    """
    tasks = {task.name: task for task in job.spec.named_tasks()}
    ready_pods = dict.fromkeys(tasks, 0)
    begun = set()
    for pod in pods:
        if pod.task in ready_pods and not pod.deleting:
            begun.add(pod.task)
            if pod.phase == SUCCEEDED or (pod.phase == RUNNING and pod.ready):
                ready_pods[pod.task] += 1

    def may_start(task: TaskSpec) -> bool:
        names = task.depends_on.name if task.depends_on is not None else ()
        if not names or task.name in begun:
            return True
        met = [name in tasks and ready_pods[name] >= tasks[name].minimum for name in names]
        either = task.depends_on is not None and task.depends_on.iteration == "any" and len(names) > 1
        return any(met) if either else all(met)

    return {name: task for name, task in tasks.items() if may_start(task)}
