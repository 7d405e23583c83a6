"""Scenarios of jobs with real rank processes: the ranks connect over TCP, and are restarted together."""

from __future__ import annotations

import re
import sys
from typing import Any

from phalanx.demo.stage import NodePlan, Scenario, ScenarioError, ScenarioRun, StagePod
from phalanx.kube.paths import Resource

JOBS = Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job")
_NODES = (NodePlan("node-0", {"cpu": "4", "memory": "8Gi"}), NodePlan("node-1", {"cpu": "4", "memory": "8Gi"}))

# Script of each rank: only the standard library, and the variables that PyTorch's own rendezvous reads.
MEET = """
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
def resolve(name):
    # The master can start after its workers, so its name is unknown at first.
    while True:
        with open(os.environ["PHALANX_HOSTS"]) as hosts:
            for address, *names in map(str.split, hosts):
                if name in names:
                    return address
        time.sleep(0.1)
address = resolve(place[0])
if rank == 0:
    server, peers, total = socket.create_server((address, place[1])), [], 0
    while len(peers) < world - 1:
        peer, _ = server.accept()
        peers.append(peer)
        total += int(peer.makefile().readline())
    for peer in peers:
        peer.sendall(f"{total}\\n".encode())
else:
    while True:
        try:
            peer = socket.create_connection((address, place[1]))
            break
        except OSError:
            time.sleep(0.1)
    peer.sendall(f"{rank}\\n".encode())
    total = int(peer.makefile().readline())
print(f"rank {rank} of {world} met all ranks at {place[0]}:{place[1]}; the sum of all ranks is {total}")
"""

# In the first run rank 1 fails once the file exists, and the other ranks wait for it until they are stopped.
_FAIL_ONCE = """
import os, sys, time
run, rank = int(os.environ["RUN"]), int(os.environ["VK_TASK_INDEX"])
while run == 0:
    if rank == 1 and os.path.exists(os.environ["BREAK"]):
        sys.exit(3)
    time.sleep(0.1)
print(f"rank {rank} is done in run {run + 1}", flush=True)
"""


def _task(name: str, replicas: int, script: str, **variables: str) -> dict[str, Any]:
    container = {
        "name": name,
        "image": "registry.invalid/python",
        "command": [sys.executable, "-c", script],
        "resources": {"requests": {"cpu": "1", "memory": "256Mi"}},
        "env": [
            {
                "name": "RUN",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['volcano.sh/job-version']"}},
            },
            *({"name": key, "value": value} for key, value in variables.items()),
        ],
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"name": name, "replicas": replicas, "template": template}


def _job(name: str, tasks: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    size = sum(task["replicas"] for task in tasks)
    body = {"schedulerName": "phalanx", "minAvailable": size, "tasks": tasks, **spec}
    return {"metadata": {"name": name}, "spec": body}


async def _until_phase(stage: ScenarioRun, name: str, phase: str) -> dict[str, Any]:
    """Return the job once it is in the phase."""
    job: dict[str, Any] = {}

    async def in_phase() -> bool:
        nonlocal job
        job = dict(await stage.client.get(JOBS.path(stage.namespace, name)))
        state = (job.get("status") or {}).get("state") or {}
        if state.get("phase") == "Failed":
            raise ScenarioError(f"job {name} failed: {state}")
        return bool(state.get("phase") == phase)

    await stage.until(in_phase, f"job {name} is {phase}", 60.0)
    return job


class PyTorch(Scenario):
    name = "pytorch"
    summary = "a master and two workers start together and connect over TCP, by the plugin's variables"
    nodes = _NODES
    executes = True

    async def play(self, stage: ScenarioRun) -> None:
        stage.title("One job, three ranks: each gets its rank and the master's address")
        job = _job(
            "train",
            [_task("master", 1, MEET), _task("worker", 2, MEET)],
            plugins={"pytorch": ["--master=master", "--worker=worker", "--port=23456"], "svc": []},
        )
        await stage.create(JOBS, job)
        stage.say(
            "created Job train: 1 master, 2 workers, plugin pytorch (MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK)"
        )
        done = await _until_phase(stage, "train", "Completed")
        await stage.show_pods()
        printed = await stage.show_command("job", "logs", "train", "-n", stage.namespace)
        if len(re.findall(r"rank \d of 3 met all ranks at \S+:23456; the sum of all ranks is 3", printed)) != 3:
            raise ScenarioError("not all three ranks connected")
        phases = " -> ".join(condition["status"] for condition in done["status"]["conditions"])
        stage.say(f"phases of the job: {phases}; {done['status']['succeeded']} ranks succeeded")


class RestartScenario(Scenario):
    name = "restart"
    summary = "one rank fails, and by the job's policy all ranks restart together"
    nodes = _NODES
    executes = True

    async def play(self, stage: ScenarioRun) -> None:
        stage.title("One of three ranks fails in its first run")
        breaks = stage.cluster.options.directory / "break"
        job = _job(
            "train",
            [_task("rank", 3, _FAIL_ONCE, BREAK=str(breaks))],
            policies=[{"exitCode": 3, "action": "RestartJob"}],
            plugins={"env": []},
            maxRetry=3,
        )
        await stage.create(JOBS, job)
        stage.say("created Job train: 3 ranks; policy: a rank that ends with exit code 3 restarts the job")
        await stage.until_running(3)
        first = await stage.pods()
        _show_uids(stage, first)
        breaks.touch()
        stage.say("rank 1 ends with exit code 3; the other two would wait for it forever")

        async def restarted() -> bool:
            job_object = await stage.client.get(JOBS.path(stage.namespace, "train"))
            return bool(((job_object.get("status") or {}).get("retryCount") or 0) >= 1)

        await stage.until(restarted, "the failure of one rank restarts the job")
        stage.title("All ranks restart, together")
        done = await _until_phase(stage, "train", "Completed")
        second = await stage.pods()
        _show_uids(stage, second)
        if {pod.uid for pod in first} & {pod.uid for pod in second} or len(second) != 3:
            raise ScenarioError("the ranks of the second run are not three new pods")
        printed = await stage.show_command("job", "logs", "train", "-n", stage.namespace)
        if len(re.findall(r"rank \d is done in run 2$", printed, re.MULTILINE)) != 3:
            raise ScenarioError("not all three ranks finished in the second run")
        status = done["status"]
        if status["retryCount"] != 1:
            raise ScenarioError(f"one failure made {status['retryCount']} retries")
        stage.say(
            f"the job is {status['state']['phase']} after {status['retryCount']} retry: none of the first "
            "three pods is left, three new pods repeated the work"
        )


def _show_uids(stage: ScenarioRun, pods: list[StagePod]) -> None:
    stage.say("\n".join(f"{pod.name}  {pod.phase:11}uid {pod.uid}" for pod in pods))
