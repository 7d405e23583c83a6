"""Job plugin ray: starts the Ray head and the workers with the right commands, and creates a Service for the
head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.jobs.members import JOB_NAME, TASK_SPEC
from phalanx.jobs.naming import host
from phalanx.jobs.plugins.flags import Flags
from phalanx.jobs.plugins.plugin import DesiredObject, JobPluginError, Json, SshKey
from phalanx.jobs.pod_template import add_port, containers
from phalanx.jobs.pods import JOB_NAMESPACE
from phalanx.jobs.spec import Job, TaskSpec


class RayPlugin:
    name = "ray"

    def __init__(self, arguments: Sequence[str]) -> None:
        flags = Flags(
            self.name,
            arguments,
            {
                "head": "head",
                "headContainer": "head",
                "worker": "worker",
                "workerContainer": "worker",
                "port": 6379,
                "dashboardPort": 8265,
                "clientPort": 10001,
            },
        )
        self._head, self._head_container = flags.text("head"), flags.text("headContainer")
        self._worker, self._worker_container = flags.text("worker"), flags.text("workerContainer")
        self._ports = {
            "gcs": flags.number("port"),
            "dashboard": flags.number("dashboardPort"),
            "client-server": flags.number("clientPort"),
        }

    def shape_pod(self, job: Job, task: TaskSpec, index: int, pod: Json) -> None:
        head = job.spec.task(self._head)
        if head is None:
            raise JobPluginError(f"job {job.metadata.name} doesn't have head task {self._head}")
        gcs, dashboard, client = self._ports.values()
        for container in containers(pod):
            if task.name == self._head and container.get("name") == self._head_container:
                for name, port in self._ports.items():
                    add_port(container, name, port)
                container["command"] = _shell(
                    f"ray start --head --block --dashboard-host=0.0.0.0 --port={gcs} --dashboard-port={dashboard} "
                    f"--ray-client-server-port={client}"
                )
            if task.name == self._worker and container.get("name") == self._worker_container:
                container["command"] = _shell(f"ray start --block --address={host(job, head, 0)}:{gcs}")

    def objects(self, job: Job, generate_key: Callable[[], SshKey]) -> tuple[DesiredObject, ...]:
        metadata = job.metadata
        spec = {
            "selector": {JOB_NAME: metadata.name, JOB_NAMESPACE: metadata.namespace, TASK_SPEC: self._head},
            "ports": [
                {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
                for name, port in self._ports.items()
            ],
        }
        name = f"{metadata.name}-head-svc"
        # The ports are not updated, because the API server adds node ports to some Services.
        return (DesiredObject("v1", "Service", name, job, lambda: {"spec": spec}, ("spec.selector",)),)


def _shell(command: str) -> list[str]:
    return ["sh", "-c", command]
