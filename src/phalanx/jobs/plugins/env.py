"""Job plugin env: sets the index of a pod within its task as an environment variable."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.jobs.plugins.plugin import Json, PodPlugin
from phalanx.jobs.pod_template import ALL_CONTAINERS, add_env, containers, variable
from phalanx.jobs.spec import Job, TaskSpec


class EnvPlugin(PodPlugin):
    """Job plugin env; it ignores its arguments."""

    name = "env"

    def __init__(self, arguments: Sequence[str]) -> None:
        pass

    def shape_pod(self, job: Job, task: TaskSpec, index: int, pod: Json) -> None:
        for container in containers(pod, ALL_CONTAINERS):
            add_env(container, [variable("VK_TASK_INDEX", str(index)), variable("VC_TASK_INDEX", str(index))])
