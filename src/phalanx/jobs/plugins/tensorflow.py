"""Job plugin tensorflow: sets TF_CONFIG with all members of the cluster and the role of the pod."""

from __future__ import annotations

import json
from collections.abc import Sequence

from phalanx.jobs.naming import host
from phalanx.jobs.plugins.flags import Flags
from phalanx.jobs.plugins.plugin import Json, PodPlugin
from phalanx.jobs.pod_template import add_env, containers, variable
from phalanx.jobs.spec import Job, TaskSpec

_ROLES = ("ps", "worker", "chief", "evaluator")


class TensorflowPlugin(PodPlugin):
    """Job plugin tensorflow; a job with a single pod gets no TF_CONFIG, because it is no cluster."""

    name = "tensorflow"

    def __init__(self, arguments: Sequence[str]) -> None:
        flags = Flags(self.name, arguments, {**{role: role for role in _ROLES}, "port": 2222})
        self._tasks = {role: flags.text(role) for role in _ROLES}
        self._port = flags.number("port")

    def shape_pod(self, job: Job, task: TaskSpec, index: int, pod: Json) -> None:
        tasks = job.spec.named_tasks()
        if len(tasks) == 1 and tasks[0].replicas == 1:
            return
        cluster = {}
        for role, name in self._tasks.items():
            role_task = job.spec.task(name)
            if role_task is not None and role_task.replicas:
                cluster[role] = [
                    f"{host(job, role_task, replica)}:{self._port}" for replica in range(role_task.replicas)
                ]
        role = next((role for role in ("chief", "worker", "ps", "evaluator") if self._tasks[role] == task.name), "")
        config = {"cluster": cluster, "task": {"type": role or task.name, "index": index}}
        value = json.dumps(config, separators=(",", ":"))
        for container in containers(pod):
            add_env(container, [variable("TF_CONFIG", value)])
