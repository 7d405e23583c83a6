"""Jobs whose controllers make a pod anew for each that goes: what evicted jobs need to come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from phalanx.demo.quota_board import DEPLOYMENTS
from phalanx.demo.stage import GPU, ScenarioError, ScenarioRun, StagePod
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
    """A gang of pods with a GPU each (Volcano's PodGroup). `stops` is how many seconds a pod takes to end."""
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
    """The job is done: nothing of it is wanted any more."""
    await stage.client.patch(DEPLOYMENTS.path(stage.namespace, name), {"spec": {"replicas": 0}}, PatchType.MERGE)


def job_of(pod: str) -> str:
    """The job that a pod belongs to, by the names that Deployments give."""
    return pod.rsplit("-", 2)[0]


def running(pods: Iterable[StagePod]) -> dict[str, int]:
    """job -> how many of its pods run."""
    return dict(Counter(job_of(pod.name) for pod in pods if pod.running and not pod.terminating))


async def until(stage: ScenarioRun, **wanted: int) -> list[StagePod]:
    """Waits until exactly so many pods of each job run and no others (`_` stands for `-`), and for a second that it
    stays so; shows the GPUs. Raises ScenarioError."""
    goal = {name.replace("_", "-"): count for name, count in wanted.items() if count}
    seen: dict[str, int] = {}

    async def settled() -> bool:
        seen.clear()
        seen.update(running(await stage.pods()))
        return seen == goal

    try:
        await stage.until(settled, f"{goal} run")
    except ScenarioError as error:
        raise ScenarioError(f"{error}; it is {seen}") from None
    await stage.stays(1.0, lambda pods: running(pods) == goal, f"{goal} go on running")
    await stage.show_gpus(job_of)
    return [pod for pod in await stage.pods() if pod.running]


def uids(pods: Iterable[StagePod], job: str) -> set[str]:
    """The pods of one job that run, by their uids: whoever was made anew has another."""
    return {pod.uid for pod in pods if pod.running and job_of(pod.name) == job}
