"""Scenario of gang groups as in ACK and Koordinator: gangs with their own minima start together or not at all."""

from __future__ import annotations

from typing import Any

from phalanx.demo.stage import GPU, NodePlan, Scenario, ScenarioRun, pod

_ROLES = {"ps": (1, "0"), "worker": (3, "1")}


class GangGroups(Scenario):
    name = "gang-groups"
    summary = "a PS gang and a worker gang in one group; neither starts without the other"
    nodes = (NodePlan("gpu-0", {"cpu": "16", "memory": "64Gi", GPU: "2"}),)

    async def play(self, stage: ScenarioRun) -> None:
        await stage.enter("gang-groups")
        stage.title("Two gangs, one group: 1 PS and 3 workers must fit together")
        await stage.create_pods(_members("ps", stage.namespace))
        stage.say("submitted the PS gang alone (annotation gang.scheduling.koordinator.sh/groups names both gangs)")
        await stage.until_explained(1, "ps")
        await stage.show_why("ps")
        await stage.create_pods(_members("worker", stage.namespace))
        stage.say("submitted the worker gang: 3 pods x 1 GPU; the cluster has 2")
        await stage.until_explained(3, "worker")
        await stage.stays(1.0, lambda pods: not any(entry.node for entry in pods), "no gang starts alone")
        await stage.show_pods()
        await stage.show_why("worker")
        await stage.show_why("ps")
        await stage.add_nodes(NodePlan("gpu-1", {"cpu": "16", "memory": "64Gi", GPU: "2"}))
        stage.say("added node gpu-1 with 2 GPUs")
        await stage.until_running(4)
        await stage.show_pods()
        stage.say("both gangs start in the same plan")


def _members(role: str, namespace: str) -> list[dict[str, Any]]:
    count, gpus = _ROLES[role]
    prefix = "gang.scheduling.koordinator.sh"
    annotations = {
        f"{prefix}/name": role,
        f"{prefix}/min-available": str(count),
        f"{prefix}/groups": f'["{namespace}/ps", "{namespace}/worker"]',
    }
    requests = {"cpu": "1", "memory": "1Gi"} | ({GPU: gpus} if gpus != "0" else {})
    return [pod(f"{role}-{number}", requests=requests, annotations=annotations) for number in range(count)]
