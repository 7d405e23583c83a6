"""Gangs that have to stay in one domain: 5,000 nodes, 50 racks under 5 spines. One core, no IO; plans, no bindings.

The shape is that of kube-scheduler's measurements of topology-aware groups (gangs of 4, each in one rack). Those
bind through an API server; here only the planning is measured.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator

from benchmarks.report import Row, in_own_process, show
from phalanx.cluster.state import ClusterState
from phalanx.model.events import GangUpdated, HyperNodeUpdated, NodeUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass
from phalanx.model.resources import requests_of
from phalanx.model.topology import HyperNode, HyperNodeMember, TopologyRule
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

RACK, HOST, GPU = "topology.kubernetes.io/rack", "kubernetes.io/hostname", "nvidia.com/gpu"
NODES, RACKS, SPINES = 5_000, 50, 5
GIB = 2**30
# Pods per second that are planned at least.
PROMISED = 2_000
RULES = {
    "rack, by label": TopologyRule.by_label(RACK),
    "rack preferred": TopologyRule(preferred=RACK),
    "tier 1": TopologyRule(hypernodes=True, highest_tier=1),
    "tier 2": TopologyRule(hypernodes=True, highest_tier=2),
}


def cluster() -> ClusterState:
    state = ClusterState()
    offered = requests_of({"pods": 110, "cpu": 96_000, "memory": 768 * GIB, GPU: 8})
    for number in range(NODES):
        name = f"node-{number:05}"
        labels = ((HOST, name), (RACK, f"rack{number % RACKS:02}"))
        state.apply(NodeUpdated(Node(name, allocatable=offered, labels=labels)))
    for rack in range(RACKS):
        names = (HyperNodeMember(name=f"node-{number:05}") for number in range(rack, NODES, RACKS))
        state.apply(HyperNodeUpdated(HyperNode(f"rack{rack:02}", 1, members=tuple(names))))
    for spine in range(SPINES):
        racks = (HyperNodeMember(True, f"rack{rack:02}") for rack in range(spine, RACKS, SPINES))
        state.apply(HyperNodeUpdated(HyperNode(f"spine{spine}", 2, members=tuple(racks))))
    return state


def plan(size: int, gangs: int, what: str) -> Row:
    """Gangs of pods with a GPU each, all that fit in one domain of the rule."""
    state, kind = cluster(), PodClass(requests=requests_of({"cpu": 4_000, "memory": 16 * GIB, GPU: 1}))
    for number in range(gangs):
        name = f"gang-{number:05}"
        state.apply(
            GangUpdated(Gang(GangKey("bench", name), min_member=size, created=number, topology=RULES[what]))
        )
        for member in range(size):
            pod = f"{name}-{member:03}"
            state.apply(
                PodUpdated(Pod("bench", pod, pod, kind, kind.requests, "phalanx", gang=name, created=number))
            )
    scheduler = Scheduler(state, load_policy())
    gc.collect()
    gc.disable()
    start = time.process_time()
    placed = 0
    while not scheduler.idle:
        placed += len(scheduler.cycle(1000.0).binds)
    seconds = time.process_time() - start
    gc.enable()
    if placed != size * gangs:
        raise AssertionError(f"{placed} of {size * gangs} pods were placed")
    pods = size * gangs
    return Row(
        f"{gangs} gangs of {size}, {what}", seconds, pods / PROMISED, f"{pods / seconds:,.0f} pods/s planned"
    )


def rows() -> Iterator[Row]:
    for what in RULES:
        yield in_own_process(plan, 4, 1_500, what)
    for what in RULES:
        yield in_own_process(plan, 512, 20, what)


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    return 0 if show(rows()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
