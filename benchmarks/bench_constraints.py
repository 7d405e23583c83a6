"""What pods ask of each other, in the shapes of kube-scheduler's scheduler_perf: pods placed per second.

5,000 nodes of 4 CPUs in three zones, with pods there already, and 10,000 pods to place in one cycle, singly or as
gangs of 100. One core, no IO; a plan, no bindings. Upstream's thresholds are for binding pods through an API server
with many cores, so only the shapes are comparable, not the figures.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator

import msgspec

from benchmarks.report import Row, in_own_process, show
from phalanx.cluster.state import ClusterState
from phalanx.model.events import GangUpdated, NamespaceLabelled, NodeUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.peers import NO_PEERS, Peers, PeerTerm, PodSelection, PreferredPeers, Spread
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.resources import requests_of
from phalanx.model.selectors import Requirement
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
MIB = 2**20
GANG = 100
# Pods per second that every shape must reach.
PROMISED = 2_000


class Shape(msgspec.Struct, frozen=True):
    """`there` pods that state `old` are placed beforehand, `count` pods that state `new` are measured; `apps` > 1
    makes as many deployments of them, each with statements about its own pods only."""

    color: str
    new: Peers
    there: int
    count: int
    old: Peers = NO_PEERS
    old_color: str = ""
    zones: int = 3
    namespaces: int = 1
    apps: int = 1


def meant(color: str, spaces: tuple[str, ...] = ("sched-0",)) -> PodSelection:
    return PodSelection((Requirement("color", "In", (color,)),), spaces)


def near(color: str, key: str) -> Peers:
    return Peers(affinity=(PeerTerm(meant(color), key),))


def far(color: str, key: str) -> Peers:
    return Peers(anti=(PeerTerm(meant(color), key),))


def liked(color: str, key: str, weight: int) -> Peers:
    return Peers(preferred=(PreferredPeers(PeerTerm(meant(color), key), weight),))


def spread(color: str, key: str, required: bool) -> Peers:
    return Peers(spread=(Spread(meant(color), key, 5, required=required),))


def both(color: str) -> Peers:
    """Evenly over zones, and no two on a node."""
    return Peers(anti=far(color, HOST).anti, spread=spread(color, ZONE, True).spread)


_DEVOPS = PodSelection((Requirement("color", "In", ("green",)),), (), (Requirement("team", "In", ("devops",)),))

SHAPES = {
    "SchedulingBasic": Shape("", NO_PEERS, 1_000, 10_000),
    "PodAntiAffinity": Shape("green", far("green", HOST), 1_000, 4_000, far("green", HOST), "green"),
    "PodAffinity": Shape("blue", near("blue", ZONE), 5_000, 10_000, near("blue", ZONE), "blue", zones=1),
    "TopologySpreading": Shape("blue", spread("blue", ZONE, True), 5_000, 10_000),
    "PreferredPodAffinity": Shape("red", liked("red", HOST, 1), 5_000, 10_000, liked("red", HOST, 1), "red"),
    "PreferredPodAntiAffinity": Shape(
        "yellow", liked("yellow", HOST, -1), 5_000, 10_000, liked("yellow", HOST, -1), "yellow"
    ),
    "PreferredTopologySpreading": Shape("blue", spread("blue", ZONE, False), 5_000, 10_000),
    "HostnameSpreading": Shape("blue", spread("blue", HOST, True), 5_000, 10_000),
    "RequiredAntiAffinityNSSelector": Shape(
        "green", Peers(anti=(PeerTerm(_DEVOPS, HOST),)), 1_000, 4_000,
        Peers(anti=(PeerTerm(_DEVOPS, HOST),)), "green", namespaces=100,
    ),
    "ManyDeployments": Shape("", NO_PEERS, 5_000, 10_000, apps=1_000),
    "MixedSchedulingBasePod": Shape("", NO_PEERS, 10_000, 10_000),
}  # fmt: skip

_MIXTURE = (
    ("", NO_PEERS),
    ("blue", near("blue", ZONE)),
    ("green", far("green", HOST)),
    ("red", liked("red", HOST, 1)),
    ("yellow", liked("yellow", HOST, -1)),
)


def cluster(nodes: int, zones: int) -> ClusterState:
    state = ClusterState()
    offered = requests_of({"pods": 110, "cpu": 4_000, "memory": 32 * 1024 * MIB})
    for number in range(nodes):
        name = f"node-{number:05}"
        labels = ((HOST, name), (ZONE, f"zone{number % zones}"))
        state.apply(NodeUpdated(Node(name, allocatable=offered, labels=labels)))
    return state


def pod(name: str, color: str, peers: Peers, namespace: str, node: str = "", gang: str = "") -> Pod:
    """100m CPU and 500 MiB, as upstream's."""
    amounts = requests_of({"cpu": 100, "memory": 500 * MIB})
    pod_class = PodClass(requests=amounts, scored_cpu=100, scored_memory=500 * MIB, peers=peers)
    return Pod(
        namespace, name, f"{namespace}/{name}", pod_class, amounts, "phalanx", node=node,
        phase=PodPhase.RUNNING if node else PodPhase.PENDING, gang=gang, created=1,
        labels=(("color", color),) if color else (),
    )  # fmt: skip


def fill(state: ClusterState, shape: Shape, nodes: int) -> None:
    """Pods that are there, and the namespaces."""
    for number in range(shape.namespaces):
        state.apply(NamespaceLabelled(f"sched-{number}", (("team", "devops"),)))
    for number in range(shape.there):
        color, peers = shape.old_color, shape.old
        if shape is SHAPES["MixedSchedulingBasePod"]:
            color, peers = _MIXTURE[number * len(_MIXTURE) // shape.there]
        namespace = f"sched-{number % shape.namespaces}"
        state.apply(PodUpdated(pod(f"old-{number}", color, peers, namespace, f"node-{number % nodes:05}")))


def measure(name: str, gangs: bool, nodes: int) -> Row:
    """CPU seconds of one cycle that places everything."""
    shape = SHAPES[name]
    state = cluster(nodes, shape.zones)
    fill(state, shape, nodes)
    own: dict[str, Peers] = {}
    for number in range(shape.count):
        gang = f"gang-{number // GANG}" if gangs else ""
        if gang and number % GANG == 0:
            state.apply(GangUpdated(Gang(GangKey("sched-0", gang), min_member=GANG, created=1)))
        color, peers = shape.color, shape.new
        if shape.apps > 1:
            color = f"app-{number * shape.apps // shape.count}"
            peers = own[color] if color in own else own.setdefault(color, both(color))
        state.apply(PodUpdated(pod(f"new-{number}", color, peers, "sched-0", gang=gang)))
    scheduler = Scheduler(state, load_policy())
    gc.collect()
    gc.freeze()
    start = time.process_time()
    plan = scheduler.cycle(now=1_000_000)
    seconds = time.process_time() - start
    assert len(plan.binds) == shape.count, f"{name}: {len(plan.binds)} of {shape.count} placed"
    kind = f"gangs of {GANG}" if gangs else "singles"
    note = f"{shape.count / seconds:9,.0f} pods/s"
    return Row(f"{name}, {shape.count:,} pods as {kind}, {nodes:,} nodes", seconds, shape.count / PROMISED, note)


def rows(names: list[str] | None = None, nodes: list[int] | None = None) -> Iterator[Row]:
    for name in names or SHAPES:
        for size in nodes or (5_000,):
            for gangs in (False, True):
                yield in_own_process(measure, name, gangs, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=list(SHAPES), action="append")
    parser.add_argument("--nodes", type=int, action="append")
    options = parser.parse_args()
    show(rows(options.shape, options.nodes))


if __name__ == "__main__":
    main()
