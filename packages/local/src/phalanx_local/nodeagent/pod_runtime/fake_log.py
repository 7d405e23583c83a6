"""Logs of simulated containers."""

from __future__ import annotations

from collections.abc import Callable

from phalanx_local.nodeagent.core_v1 import V1ContainerStatus, V1Pod
from phalanx_local.nodeagent.pod_runtime.log_server import LogError
from phalanx_local.nodeagent.pod_runtime.script import LOG


class FakeLogs:
    """Simulated logs: one line per start and end in the pod's status, and the annotation `phalanx.dev/log`.

    `runs(uid)` returns whether the simulated pod still runs.
    """

    def __init__(self, runs: Callable[[str], bool]) -> None:
        self._runs = runs

    def log(self, pod: V1Pod, container: str, *, previous: bool) -> bytes:
        status = _status(pod, container)
        state = (status.last_state if previous else status.state) if status else None
        started = None
        if state is not None:
            run = state.running or state.terminated
            started = run.started_at if run else None
        if started is None:
            which = "previous terminated container" if previous else "container"
            raise LogError(f'{which} "{container}" in pod "{pod.metadata.name}" has not started')
        specs = [*pod.spec.containers, *(pod.spec.init_containers or ())]
        image = next((spec.image for spec in specs if spec.name == container), "")
        lines = [f"{started} container {container} of {pod.key} pretends to run {image} on node {pod.node}"]
        if text := (pod.metadata.annotations or {}).get(LOG):
            lines.append(text.rstrip("\n"))
        if state is not None and state.terminated is not None:
            ended = state.terminated
            lines.append(f"{ended.finished_at} container {container} ends with exit code {ended.exit_code}")
        return ("\n".join(lines) + "\n").encode()

    def growing(self, pod: V1Pod, container: str) -> bool:
        return self._runs(pod.metadata.uid)


def _status(pod: V1Pod, container: str) -> V1ContainerStatus | None:
    statuses = [*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ())]
    return next((status for status in statuses if status.name == container), None)
