"""Scenario of KEP 34: the readiness of a kube-batch job, counting members that have succeeded."""

from __future__ import annotations

from typing import Any

from phalanx.demo.stage import NodePlan, Scenario, ScenarioRun, pod
from phalanx.kube.paths import Resource

_GROUPS = Resource("scheduling.incubator.k8s.io", "v1alpha1", "podgroups", "PodGroup")
_ANNOTATION = {"scheduling.k8s.io/group-name": "train"}


class JobReady(Scenario):
    name = "job-ready"
    summary = "a kube-batch PodGroup; members that have succeeded still count for a replacement"
    nodes = (NodePlan("cpu-0", {"cpu": "3", "memory": "16Gi"}),)

    async def play(self, stage: ScenarioRun) -> None:
        await stage.enter("job-ready")
        stage.title("Pods without their PodGroup, then without enough members")
        await stage.create_pods([_member("train-0", 2.5), _member("train-1")])
        stage.say("submitted two pods with the annotation scheduling.k8s.io/group-name: train")
        await stage.until_explained(2)
        await stage.show_why("train")
        await stage.create(_GROUPS, {"metadata": {"name": "train"}, "spec": {"minMember": 3}})
        stage.say("created PodGroup train (scheduling.incubator.k8s.io/v1alpha1) with minMember: 3")

        async def counted() -> bool:
            return (await stage.why("train")).reason == "NotEnoughMembers"

        await stage.until(counted, "the scheduler knows the group")
        await stage.show_why("train")
        stage.title("The third member makes the job ready")
        await stage.create_pods([_member("train-2")])
        await stage.until_running(3)
        await stage.show_pods()
        stage.title("One member succeeds, one is lost: its replacement starts, because success counts")

        async def one_succeeded() -> bool:
            return any(entry.phase == "Succeeded" for entry in await stage.pods())

        await stage.until(one_succeeded, "train-0 has succeeded")
        await stage.delete_pods("train-2")
        stage.say("train-0 has succeeded; train-2 is lost")
        await stage.create_pods([_member("train-2b")])
        stage.say("its controller creates train-2b: 1 running + 1 pending < 3, but 2 allocated + 1 succeeded = 3")
        await stage.until_running(2)
        await stage.show_pods()
        status: dict[str, Any] = {}

        async def is_published() -> bool:
            group = await stage.client.get(_GROUPS.path(stage.namespace, "train"))
            status.update(group.get("status") or {})
            return (status.get("running"), status.get("succeeded")) == (2, 1)

        await stage.until(
            is_published, "the PodGroup's status counts 2 members that run and the one that succeeded"
        )
        stage.say(f"PodGroup status: {', '.join(f'{key} {status[key]}' for key in _COUNTS if key in status)}")


_COUNTS = ("phase", "running", "succeeded", "failed")


def _member(name: str, run_seconds: float | None = None) -> dict[str, Any]:
    return pod(name, requests={"cpu": "1", "memory": "1Gi"}, annotations=_ANNOTATION, run_seconds=run_seconds)
