"""Scenario of ACK's example: a TensorFlow job of one parameter server and four workers x 2 GPUs, on four GPUs."""

from __future__ import annotations

from typing import Any

from phalanx.demo.stage import GPU, NodePlan, Scenario, ScenarioError, ScenarioRun, StagePod, pod

_JOB = "tf-smoke-gpu"
_LABELS = {
    "pod-group.scheduling.sigs.k8s.io/name": _JOB,
    "pod-group.scheduling.sigs.k8s.io/min-available": "5",
}


def _job(labels: dict[str, str]) -> list[dict[str, Any]]:
    parts = [pod(f"{_JOB}-ps-0", requests={"cpu": "1", "memory": "1Gi"}, labels=labels)]
    workers = [
        pod(f"{_JOB}-worker-{number}", requests={"cpu": "1", "memory": "1Gi", GPU: "2"}, labels=labels)
        for number in range(4)
    ]
    return parts + workers


class TensorFlow(Scenario):
    name = "tensorflow"
    summary = "1 PS + 4 workers x 2 GPUs on 4 GPUs; without a gang half a job holds them forever"
    nodes = (NodePlan("gpu-0", {"cpu": "16", "memory": "64Gi", GPU: "4"}),)

    async def play(self, stage: ScenarioRun) -> None:
        await self._without(stage)
        await self._with(stage)

    async def _without(self, stage: ScenarioRun) -> None:
        stage.title("Without a gang: half a job starts, and holds GPUs that it cannot use")
        await stage.enter("without-gang")
        await stage.create_pods(_job({}))
        stage.say("submitted 1 PS and 4 workers x 2 GPUs as plain pods; the cluster has 4 GPUs")
        await stage.until_running(3)
        await stage.until_explained(2)
        await stage.stays(1.5, _two_workers_run, "two workers hold the GPUs and two wait")
        await stage.show_pods()
        await stage.show_gpus()
        stage.say("two workers hold all 4 GPUs and wait for two that can never start: a deadlock")
        await stage.delete_pods()
        stage.say("deleted the job")

    async def _with(self, stage: ScenarioRun) -> None:
        stage.title("With a gang: all five wait as one, with one reason")
        await stage.enter("with-gang")
        await stage.create_pods(_job(_LABELS))
        stage.say("submitted the same job with two labels on its pods: name tf-smoke-gpu, min-available 5")
        waiting = await stage.until_explained(5)
        await stage.stays(1.0, lambda pods: not any(entry.node for entry in pods), "no pod starts alone")
        await stage.show_pods()
        await stage.show_gpus()
        if len({entry.message for entry in waiting}) != 1:
            raise ScenarioError("the members of one gang have different reasons")
        await stage.show_why(_JOB)
        stage.title("Four more GPUs: all five start together")
        await stage.add_nodes(NodePlan("gpu-1", {"cpu": "16", "memory": "64Gi", GPU: "4"}))
        stage.say("added node gpu-1 with 4 GPUs")
        running = await stage.until_running(5)
        await stage.show_pods()
        await stage.show_gpus()
        if len(running) != 5:
            raise ScenarioError("not all five run")
        stage.say("all five run: a gang starts as a whole, or not at all")


def _two_workers_run(pods: list[StagePod]) -> bool:
    workers = [entry for entry in pods if "worker" in entry.name]
    return sum(entry.running for entry in workers) == 2 and sum(not entry.node for entry in workers) == 2
