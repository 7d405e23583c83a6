"""Scenario of the coscheduling KEP: two jobs start partly and wait for each other's GPUs."""

from __future__ import annotations

from typing import Any

from phalanx.demo.stage import GPU, NodePlan, Scenario, ScenarioError, ScenarioRun, StagePod, pod


def _interleaved(labels_of: dict[str, dict[str, str]], run_seconds: float | None) -> list[dict[str, Any]]:
    """Return two jobs of four pods, created alternately as by two controllers."""
    return [
        pod(f"{job}-{number}", requests={"cpu": "1", GPU: "1"}, labels=labels_of[job], run_seconds=run_seconds)
        for number in range(4)
        for job in ("mpi-a", "mpi-b")
    ]


class Deadlock(Scenario):
    name = "deadlock"
    summary = "two jobs of four pods on six GPUs: without gangs both wait forever, with gangs they run in turn"
    nodes = (
        NodePlan("gpu-0", {"cpu": "8", "memory": "32Gi", GPU: "3"}),
        NodePlan("gpu-1", {"cpu": "8", "memory": "32Gi", GPU: "3"}),
    )

    async def play(self, stage: ScenarioRun) -> None:
        stage.title("Without gangs: each job gets three of its four pods")
        await stage.enter("without-gangs")
        pods = _interleaved({"mpi-a": {}, "mpi-b": {}}, None)
        for pair in range(0, 8, 2):
            # The controllers alternate, as they do under equal load.
            await stage.create_pods(pods[pair : pair + 2])
            await stage.until_running(min(pair + 2, 6))
        stage.say("submitted mpi-a and mpi-b, four pods each, one GPU a pod; the cluster has 6 GPUs")
        await stage.stays(1.0, _both_are_stuck, "both jobs are partly started and stay so")
        await stage.show_gpus()
        stage.say("both hold GPUs and wait for the other's GPUs: a deadlock")
        await stage.delete_pods()
        stage.title("With gangs: one job runs completely, then the other")
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
        stage.say(f"{second} starts with all four pods: no deadlock, in any order of creation")


def _both_are_stuck(pods: list[StagePod]) -> bool:
    started = [sum(bool(entry.node) for entry in pods if entry.name.startswith(job)) for job in ("mpi-a", "mpi-b")]
    return sum(started) == 6 and all(0 < count < 4 for count in started)
