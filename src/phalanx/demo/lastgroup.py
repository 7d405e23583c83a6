"""Scenario of the coscheduling KEP's LastPodGroup: a gang that does not fit must not block the gang behind it."""

from __future__ import annotations

from phalanx.demo.stage import GPU, NodePlan, Scenario, ScenarioRun, pod


class LastPodGroup(Scenario):
    name = "last-pod-group"
    summary = "a gang that does not fit reserves nothing, so the next one starts at once"
    nodes = (NodePlan("gpu-0", {"cpu": "16", "memory": "64Gi", GPU: "4"}),)

    async def play(self, stage: ScenarioRun) -> None:
        await stage.enter("last-pod-group")
        stage.title("A big gang is submitted first and does not fit")
        await stage.create_pods(_gang("big", 6))
        stage.say("submitted gang big: 6 pods x 1 GPU on a cluster with 4")
        await stage.until_explained(6, "big")
        await stage.show_why("big")
        stage.title("A small gang is submitted after it")
        await stage.create_pods(_gang("small", 3))
        stage.say("submitted gang small: 3 pods x 1 GPU")
        stage.say(
            "a scheduler that places pods one by one would keep 4 pods of big on reserved GPUs\n"
            "until a timeout, or until a pod of small makes it reject them (the last PodGroup)"
        )
        await stage.until_running(3, "small")
        await stage.stays(
            1.0,
            lambda pods: not any(entry.node for entry in pods if entry.name.startswith("big")),
            "big reserves nothing",
        )
        await stage.show_gpus()
        stage.say("small runs completely; big reserves nothing and keeps its position in the queue")
        await stage.add_nodes(NodePlan("gpu-1", {"cpu": "16", "memory": "64Gi", GPU: "5"}))
        stage.say("added node gpu-1 with 5 GPUs")
        await stage.until_running(6, "big")
        await stage.show_gpus()
        stage.say("big starts as one")


def _gang(name: str, size: int) -> list[dict[str, object]]:
    labels = {"pod-group/name": name, "pod-group/min-available": str(size)}
    return [pod(f"{name}-{number}", requests={"cpu": "1", GPU: "1"}, labels=labels) for number in range(size)]
