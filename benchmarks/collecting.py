"""Waits of gangs on the openb trace with and without collecting: `python -m benchmarks.collecting [SEED...]`.

The pods of the trace that request whole GPUs and run for at most four hours arrive in their order and run as long
as recorded; no pod states a limit. Arrivals are a Poisson stream that requests as many GPUs as the cluster has: the
recorded ones are bursts with idle weeks between them. Some pods are replaced by gangs of 4 to 16 pods with the
request and the run time of the pod, drawn by the seed (synthetic: the trace has no gangs). Collecting must cost at
most 2 % of the allocated GPU time, and shorten the longest wait of a gang to a fifth.
"""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Sequence

import msgspec

from benchmarks.traces import found
from phalanx.cluster.state import ClusterState
from phalanx.model.events import NodeUpdated
from phalanx.model.node import Node
from phalanx.model.resources import requests_of
from phalanx.scheduling.policy.loader import DEFAULT_POLICY, load_policy
from phalanx.simulation.job import SimulatedJob, pod_class
from phalanx.simulation.world import World

SEEDS = (1, 2, 3)
#: Number of nodes with eight GPUs, part of the pods that are replaced by gangs, and requested part of the GPUs.
NODES, GANGS, LOAD = 16, 0.01, 1.0
MOST_HOURS = 4
GPU, CPU, MEMORY = "nvidia.com/gpu", "cpu", "memory"
#: The pods arrive that many times as fast as recorded.
SPEED = 6
EPOCH = 1_700_000_000
OFF = DEFAULT_POLICY.replace("depth: none", "depth: none, collectAfter: never")


class Outcome(msgspec.Struct, frozen=True):
    """Allocated GPU seconds, and waits in seconds of gangs and of single pods, sorted."""

    allocated: int
    gangs: list[int]
    singles: list[int]
    never_started: int


def jobs(seed: int) -> list[SimulatedJob]:
    """Return the workload of a seed."""
    pods = found("openb_pod_list_default.csv")
    assert pods is not None
    draws = random.Random(seed)
    rows = []
    for row in csv.DictReader(pods.read_text().splitlines()):
        gpus, created = int(row["num_gpu"]), int(row["creation_time"])
        begun = max(created, int(row["scheduled_time"] or created))
        run_time = max(60, int(row["deletion_time"]) - begun)
        if gpus and int(row["gpu_milli"] or 0) == 1000 and run_time <= MOST_HOURS * 3600:
            members = draws.randint(4, 16) if gpus == 1 and draws.random() < GANGS else 1
            rows.append((created, row, gpus, run_time, members))
    rows.sort(key=lambda entry: entry[0])
    work = sum(gpus * run_time * members for _, _, gpus, run_time, members in rows)
    pause = work / len(rows) / (8 * NODES * LOAD)
    workload, arrival = [], 0.0
    for _, row, gpus, run_time, members in rows:
        requests = {CPU: int(row["cpu_milli"]), MEMORY: int(row["memory_mib"]) * 2**20, GPU: gpus}
        job = SimulatedJob(row["name"], int(arrival), run_time, pod_class(requests), members, members, members)
        workload.append(job)
        arrival += draws.expovariate(1 / pause)
    return workload


def nodes() -> list[Node]:
    """Return the nodes of the cluster."""
    table = found("openb_node_list_all_node.csv")
    assert table is not None
    rows = [row for row in csv.DictReader(table.read_text().splitlines()) if int(row["gpu"]) == 8][:NODES]
    return [
        Node(
            row["sn"],
            allocatable=requests_of(
                {CPU: int(row["cpu_milli"]), MEMORY: int(row["memory_mib"]) * 2**20, GPU: 8, "pods": 110}
            ),
        )
        for row in rows
    ]


def run(policy: str, seed: int) -> Outcome:
    """Simulate the trace under a policy until the last pod has arrived."""
    workload = jobs(seed)
    world = World(ClusterState(), load_policy(policy), workload, start=EPOCH, main_resource=GPU, seed=seed)
    world.apply([NodeUpdated(node) for node in nodes()])
    end = EPOCH + max(job.submit for job in workload)
    world.run(end)
    assert not world.failures, world.failures
    gpus = {job.name: dict(job.pod_class.requests)[GPU] for job in workload}
    allocated = sum(
        gpus[history.name] * count * ((stint.end if stint.end is not None else end) - stint.begin)
        for history in world.histories
        for stint in history.stints
        for count in stint.nodes.values()
    )
    waits = {True: list[int](), False: list[int]()}
    for history in world.histories:
        waits[history.pods > 1].append(history.wait(end))
    never = sum(history.never_started for history in world.histories if history.pods > 1)
    return Outcome(allocated, sorted(waits[True]), sorted(waits[False]), never)


def main(seeds: Sequence[int]) -> int:
    """Print the table. Return 1 if collecting costs too much or shortens too little."""
    if found("openb_pod_list_default.csv") is None or found("openb_node_list_all_node.csv") is None:
        print("no openb trace: python -m benchmarks.traces FOLDER, and name the folder in PHALANX_TRACES")
        return 2
    print("seed  collect    GPU h  gangs  never  longest  mean of gangs  mean of pods (waits in hours)")
    good = True
    for seed in seeds:
        off, on = run(OFF, seed), run(DEFAULT_POLICY, seed)
        for name, outcome in (("off", off), ("on", on)):
            counts = f"{outcome.allocated / 3600:8.0f} {len(outcome.gangs):6} {outcome.never_started:6}"
            waits = f"{outcome.gangs[-1] / 3600:8.2f} {_mean(outcome.gangs):14.2f} {_mean(outcome.singles):13.2f}"
            print(f"{seed:>4}  {name:7} {counts} {waits}", flush=True)
        lost = 100 * (1 - on.allocated / off.allocated)
        shorter = off.gangs[-1] / max(1, on.gangs[-1])
        print(f"      lost GPU time {lost:.2f} %, longest wait {shorter:.1f} times shorter")
        good &= lost <= 2 and 5 * on.gangs[-1] <= off.gangs[-1]
    return 0 if good else 1


def _mean(waits: Sequence[int]) -> float:
    return sum(waits) / max(1, len(waits)) / 3600


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]] or SEEDS))
