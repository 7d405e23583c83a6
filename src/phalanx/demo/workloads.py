"""Demo jobs as Deployments: their controllers replace evicted pods, so that evicted jobs start again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from phalanx.demo.quota_board import DEPLOYMENTS
from phalanx.demo.stage import GPU, ScenarioError, ScenarioRun, StagePod, counts_text
from phalanx.kube.client import PatchType
from phalanx.kube.paths import Resource

POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
GROUP_NAME = "scheduling.k8s.io/group-name"
TERMINATE_SECONDS = "phalanx.dev/terminate-seconds"


async def submit(
    stage: ScenarioRun,
    name: str,
    members: int,
    *,
    minimum: int | None = None,
    queue: str = "default",
    priority_class: str = "",
    stops: float = 0.1,
    annotations: Mapping[str, str] | None = None,
) -> None:
    """Create a gang of pods with a GPU each (Volcano's PodGroup); a pod takes `stops` seconds to end."""
    group = {"minMember": members if minimum is None else minimum, "queue": queue}
    notes = {GROUP_NAME: name, TERMINATE_SECONDS: f"{stops:g}", **(annotations or {})}
    resources = {"requests": {"cpu": "1", GPU: "1"}, "limits": {GPU: "1"}}
    spec: dict[str, object] = {
        "schedulerName": "phalanx",
        "containers": [{"name": "main", "image": "registry.invalid/main", "resources": resources}],
    }
    if priority_class:
        group["priorityClassName"] = spec["priorityClassName"] = priority_class
    await stage.create(POD_GROUPS, {"metadata": {"name": name}, "spec": group})
    labels = {"app": name}
    template = {"metadata": {"labels": labels, "annotations": notes}, "spec": spec}
    body = {"replicas": members, "selector": {"matchLabels": labels}, "template": template}
    await stage.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": body})


async def finish(stage: ScenarioRun, name: str) -> None:
    """Scale a finished job to 0."""
    await stage.client.patch(DEPLOYMENTS.path(stage.namespace, name), {"spec": {"replicas": 0}}, PatchType.MERGE)


def job_of(pod: str) -> str:
    """Return the job of a pod, by the names that Deployments give."""
    return pod.rsplit("-", 2)[0]


def running(pods: Iterable[StagePod]) -> dict[str, int]:
    """Return the number of running pods by job."""
    return dict(Counter(job_of(pod.name) for pod in pods if pod.running and not pod.terminating))


async def until(stage: ScenarioRun, **wanted: int) -> list[StagePod]:
    """Wait until exactly these numbers of pods run per job, and for a second that this is stable; show the GPUs.

    `_` stands for `-` in names. Raises ScenarioError.
    """
    goal = {name.replace("_", "-"): count for name, count in wanted.items() if count}
    seen: dict[str, int] = {}

    async def settled() -> bool:
        seen.clear()
        seen.update(running(await stage.pods()))
        return seen == goal

    try:
        await stage.until(settled, f"{counts_text(goal)} run")
    except ScenarioError as error:
        raise ScenarioError(f"{error}; observed {counts_text(seen)}") from None
    await stage.stays(1.0, lambda pods: running(pods) == goal, f"{counts_text(goal)} keep running")
    await stage.show_gpus(job_of)
    return [pod for pod in await stage.pods() if pod.running]


def uids(pods: Iterable[StagePod], job: str) -> set[str]:
    """Return the uids of a job's running pods; a replacement has another uid."""
    return {pod.uid for pod in pods if pod.running and job_of(pod.name) == job}
