"""Job plugin pytorch: sets the variables with the master and the rank for torch.distributed."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.jobs.naming import host
from phalanx.jobs.plugins.flags import Flags
from phalanx.jobs.plugins.plugin import Json, PodPlugin
from phalanx.jobs.pod_template import add_env, add_port, containers, variable
from phalanx.jobs.spec import Job, TaskSpec
from phalanx.model.pod_quota import mapping, sequence

_WAIT = "wait-for-master"


class PytorchPlugin(PodPlugin):
    """Job plugin pytorch; a job without the master task gets no variables, as upstream."""

    name = "pytorch"

    def __init__(self, arguments: Sequence[str]) -> None:
        flags = Flags(
            self.name,
            arguments,
            {
                "master": "master",
                "worker": "worker",
                "port": 23456,
                "wait-master-enabled": False,
                "wait-master-timeout": 300,
                "wait-master-image": "busybox:1.36.1",
            },
        )
        self._master, self._worker = flags.text("master"), flags.text("worker")
        self._port = flags.number("port")
        self._waits = flags.is_set("wait-master-enabled")
        self._timeout = flags.number("wait-master-timeout")
        self._image = flags.text("wait-master-image")

    def shape_pod(self, job: Job, task: TaskSpec, index: int, pod: Json) -> None:
        master = job.spec.task(self._master)
        if master is None:
            return
        address = host(job, master, 0)
        members = sum(
            member_task.replicas
            for member_task in job.spec.named_tasks()
            if member_task.name in (self._master, self._worker)
        )
        variables = [
            variable("MASTER_ADDR", address),
            variable("MASTER_PORT", str(self._port)),
            variable("WORLD_SIZE", str(members)),
        ]
        if task.name == self._worker:
            variables.append(variable("RANK", str(index + 1)))
            if self._waits:
                self._wait(pod, address)
        elif task.name == self._master:
            variables.append(variable("RANK", "0"))
        for container in containers(pod):
            add_port(container, "pytorchjob-port", self._port)
            add_env(container, [dict(member_task) for member_task in variables])

    def _wait(self, pod: Json, address: str) -> None:
        """Add an init container to a pod that waits until the master's port accepts connections, or fails after the
        timeout."""
        first = pod["spec"].setdefault("initContainers", [])
        if any(mapping(container).get("name") == _WAIT for container in sequence(first)):
            return
        script = (
            f"left={self._timeout}\n"
            # An image without nc can have bash, which connects without it.
            f"until {{ nc -z {address} {self._port} || : > /dev/tcp/{address}/{self._port}; }} 2>/dev/null; do\n"
            f'  [ "$left" -gt 0 ] || {{ echo "no connection to {address}:{self._port}"; exit 1; }}\n'
            "  sleep 2\n"
            "  left=$((left - 2))\n"
            "done\n"
        )
        if isinstance(first, list):
            first.append({"name": _WAIT, "image": self._image, "command": ["sh", "-c", script]})
