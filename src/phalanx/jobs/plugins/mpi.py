"""Job plugin mpi: the pods of the master task get the hosts of the workers, and all pods open the ssh port."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.jobs.naming import hosts
from phalanx.jobs.plugins.flags import Flags
from phalanx.jobs.plugins.plugin import Json, PodPlugin
from phalanx.jobs.pod_template import ALL_CONTAINERS, add_env, add_port, containers, variable
from phalanx.jobs.spec import Job, TaskSpec


class MpiPlugin(PodPlugin):
    name = "mpi"

    def __init__(self, arguments: Sequence[str]) -> None:
        flags = Flags(self.name, arguments, {"master": "master", "worker": "worker", "port": 22})
        self.master, self._worker = flags.text("master"), flags.text("worker")
        self._port = flags.number("port")

    def shape_pod(self, job: Job, task: TaskSpec, index: int, pod: Json) -> None:
        is_master = task.name == self.master
        workers = job.spec.task(self._worker) if is_master else None
        if is_master and workers is None:
            return
        for container in containers(pod, ALL_CONTAINERS):
            add_port(container, "mpijob-port", self._port)
            if workers is not None:
                add_env(container, [variable("MPI_HOST", ",".join(hosts(job, workers)))])
