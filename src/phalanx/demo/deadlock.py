"""The coscheduling KEP: two jobs that each start in half and wait for each other's room."""

from __future__ import annotations

from typing import Any

from phalanx.demo.stage import GPU, NodePlan, Scenario, ScenarioError, ScenarioRun, StagePod, pod


def _interleaved(labels_of: dict[str, dict[str, str]], run_seconds: float | None) -> list[dict[str, Any]]:
    """Two jobs of four pods whose controllers create them in turns."""
    return [
        pod(f"{job}-{number}", requests={"cpu": "1", GPU: "1"}, labels=labels_of[job], run_seconds=run_seconds)
        for number in range(4)
        for job in ("mpi-a", "mpi-b")
    ]


class Deadlock(Scenario):
    name = "deadlock"
    summary = "two jobs of four on six GPUs; each gets three and waits for ever, or one runs after the other"
    nodes = (
        NodePlan("gpu-0", {"cpu": "8", "memory": "32Gi", GPU: "3"}),
        NodePlan("gpu-1", {"cpu": "8", "memory": "32Gi", GPU: "3"}),
    )

    async def play(self, stage: ScenarioRun) -> None:
        stage.title("Without gangs: each job gets three of its four pods")
        await stage.enter("without-gangs")
        pods = _interleaved({"mpi-a": {}, "mpi-b": {}}, None)
        for pair in range(0, 8, 2):
            # The controllers take turns, as they do when both are as busy.
            await stage.create_pods(pods[pair : pair + 2])
            await stage.until_running(min(pair + 2, 6))
        stage.say("submitted mpi-a and mpi-b, four pods each, one GPU a pod; the cluster has 6 GPUs")
        await stage.stays(1.0, _both_are_stuck, "both jobs are started in part and stay so")
        await stage.show_gpus()
        stage.say("both hold GPUs and wait for the other: nobody will ever compute")
        await stage.delete_pods()
        stage.title("With gangs: one job runs whole, then the other")
        await stage.enter("with-gangs")
        labels = {job: {"pod-group/name": job, "pod-group/min-available": "4"} for job in ("mpi-a", "mpi-b")}
        await stage.create_pods(_interleaved(labels, 3.0))
        stage.say("submitted both again with the labels pod-group/name and pod-group/min-available: 4")
        await stage.until_running(4)
        first = (await stage.pods())[0].name[:5] if (await stage.pods())[0].node else "mpi-b"
        second = "mpi-b" if first == "mpi-a" else "mpi-a"
        await stage.until_explained(4, second)
        await stage.show_gpus()
        await stage.show_why(second)

        async def finished() -> bool:
            return all(entry.phase == "Succeeded" for entry in await stage.pods() if entry.name.startswith(first))

        await stage.until(finished, f"{first} has finished")
        stage.say(f"{first} has finished")
        running = await stage.until_running(4, second)
        await stage.show_gpus()
        if len(running) != 4:
            raise ScenarioError(f"{second} did not start as a whole")
        stage.say(f"{second} starts with all four: no deadlock, whatever order the pods came in")


def _both_are_stuck(pods: list[StagePod]) -> bool:
    started = [sum(bool(entry.node) for entry in pods if entry.name.startswith(job)) for job in ("mpi-a", "mpi-b")]
    return sum(started) == 6 and all(0 < count < 4 for count in started)
