"""Synthetic clusters and pods for the planning benchmarks. All figures are synthetic; the seed fixes them."""

from __future__ import annotations

import random

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.model.events import GangUpdated, NodeUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.resources import Requests, requests_of

GIB = 2**30
GPU = "nvidia.com/gpu"
CLASSES = 40


def nodes(count: int, zones: int = 4) -> list[Node]:
    """Nodes with six resources: pods, cpu, memory, ephemeral-storage, nvidia.com/gpu and rdma/hca."""
    allocatable = requests_of(
        {
            "pods": 110,
            "cpu": 96_000,
            "memory": 768 * GIB,
            "ephemeral-storage": 2000 * GIB,
            GPU: 8,
            "rdma/hca": 8,
        }
    )
    return [
        Node(
            name=f"node-{number:05}",
            allocatable=allocatable,
            labels=(("kubernetes.io/hostname", f"node-{number:05}"), ("zone", f"z{number % zones}")),
        )
        for number in range(count)
    ]


def classes(seed: int = 1) -> list[PodClass]:
    """40 classes; every second one selects a zone."""
    draw = random.Random(seed)
    made: list[PodClass] = []
    for number in range(CLASSES):
        cpu = draw.choice([500, 1000, 2000, 4000, 8000])
        memory = draw.choice([1, 2, 4, 8, 16]) * GIB
        amounts = {"cpu": cpu + number, "memory": memory}
        if number % 5 == 0:
            amounts |= {GPU: 1, "rdma/hca": 1}
        if number % 3 == 0:
            amounts["ephemeral-storage"] = 10 * GIB
        requests: Requests = requests_of(amounts)
        selector = (("zone", f"z{number % 4}"),) if number % 2 else ()
        made.append(
            PodClass(requests=requests, node_selector=selector, scored_cpu=cpu + number, scored_memory=memory)
        )
    return made


def cluster(node_count: int) -> ClusterState:
    state = ClusterState()
    for node in nodes(node_count):
        state.apply(NodeUpdated(node))
    return state


def add_gangs(state: ClusterState, pods: int, seed: int = 2) -> int:
    """Pending gangs of 1 to 100 pods, one of 40 classes each, `pods` pods in all; the number of gangs."""
    draw = random.Random(seed)
    kinds = classes()
    made = gangs = 0
    while made < pods:
        size = min(draw.randint(1, 100), pods - made)
        name = f"gang-{gangs:05}"
        kind = draw.choice(kinds)
        state.apply(GangUpdated(Gang(GangKey("bench", name), min_member=size, created=gangs)))
        for member in range(size):
            state.apply(PodUpdated(one_pod(f"{name}-{member}", kind, gangs, name)))
        made += size
        gangs += 1
    return gangs


def add_singles(state: ClusterState, pods: int, seed: int = 3) -> None:
    """Pending pods without a gang, each of a random one of 40 classes."""
    draw = random.Random(seed)
    kinds = classes()
    for number in range(pods):
        state.apply(PodUpdated(one_pod(f"pod-{number:06}", draw.choice(kinds), number // 100, "")))


def one_pod(name: str, kind: PodClass, created: int, gang: str = "") -> Pod:
    return Pod("bench", name, f"uid-{name}", kind, kind.requests, "phalanx", created=created, gang=gang)


def add_members(state: ClusterState, gang: str, members: list[PodClass], created: int = 0) -> None:
    """One pending gang that needs all of these members."""
    state.apply(GangUpdated(Gang(GangKey("bench", gang), min_member=len(members), created=created)))
    for number, kind in enumerate(members):
        state.apply(PodUpdated(one_pod(f"{gang}-{number}", kind, created, gang)))


def fill(state: ClusterState, kind: PodClass, keep_free: int = 0, on_last: int = 0) -> None:
    """Running pods of a class on every node until all GPUs are taken, but for `keep_free` on the last nodes."""
    share = dict(kind.requests)[GPU]
    everyone = nodes(len(state.nodes))
    for place, node in enumerate(everyone):
        free = keep_free if place >= len(everyone) - on_last else 0
        for number in range((dict(node.allocatable)[GPU] - free) // share):
            name = f"running-{node.name}-{number}"
            pod = one_pod(name, kind, 0, "")
            state.apply(PodUpdated(msgspec.structs.replace(pod, node=node.name, phase=PodPhase.RUNNING)))
