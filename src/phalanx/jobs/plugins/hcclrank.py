"""Job plugin hcclrank: annotates a pod with its rank in the rank table of Ascend devices."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.jobs.plugins.flags import Flags
from phalanx.jobs.plugins.plugin import Json, PodPlugin
from phalanx.jobs.pod_template import containers
from phalanx.jobs.spec import Job, TaskSpec
from phalanx.model.pod_quota import mapping, sequence, text

_KEY = "hccl/rankIndex"


class HcclrankPlugin(PodPlugin):
    """Job plugin hcclrank; the rank is the variable RANK of the first container with it, else it follows from the
    tasks."""

    name = "hcclrank"

    def __init__(self, arguments: Sequence[str]) -> None:
        flags = Flags(self.name, arguments, {"master": "master", "worker": "worker"})
        self._master, self._worker = flags.text("master"), flags.text("worker")

    def shape_pod(self, job: Job, task: TaskSpec, index: int, pod: Json) -> None:
        annotations = pod["metadata"]["annotations"]
        if annotations.get(_KEY):
            return
        rank = _stated_rank(pod)
        if not rank and task.name == self._master:
            rank = str(index)
        elif not rank and task.name == self._worker:
            masters = job.spec.task(self._master)
            rank = str((masters.replicas if masters is not None else 0) + index)
        if rank:
            annotations[_KEY] = rank


def _stated_rank(pod: Json) -> str:
    for container in containers(pod):
        for entry in map(mapping, sequence(container.get("env"))):
            if entry.get("name") == "RANK":
                return text(entry.get("value"))
    return ""
