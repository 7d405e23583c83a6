"""Short constructors of cluster objects, and recorders of the daemon's effects."""

from __future__ import annotations

from typing import NamedTuple

from phalanx.cluster.state import ClusterState
from phalanx.kube.events import ObjectReference
from phalanx.model.events import GangUpdated, NodeUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey, GroupRef
from phalanx.model.node import Node
from phalanx.model.pod import PlanMark, Pod, PodClass, PodPhase

CPU1 = PodClass(requests=(("cpu", 1000),))
G = GangKey("ns", "g")
REF = GroupRef("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", "ns", "g", "uid-pg-g")
MARK = PlanMark("c1-1000", 3, 1000)


def node(name: str = "n1", cpu: int = 8) -> Node:
    return Node(name, f"uid-{name}", (("cpu", cpu * 1000), ("pods", 110)))


def pod(
    name: str,
    gang: str = "g",
    *,
    node: str = "",
    phase: PodPhase = PodPhase.PENDING,
    mark: PlanMark | None = None,
    scheduler: str = "phalanx",
    gated: bool = False,
    created: int = 900,
    condemned: str = "",
) -> Pod:
    return Pod(
        "ns", name, f"uid-{name}", CPU1, CPU1.requests, scheduler, node, phase,
        created=created, gang=gang, mark=mark, gated=gated, condemned=condemned,
    )  # fmt: skip


def state_of(*pods: Pod, gang: Gang | None = None, nodes: tuple[Node, ...] = (node(),)) -> ClusterState:
    state = ClusterState()
    for entry in nodes:
        state.apply(NodeUpdated(entry))
    if gang is not None:
        state.apply(GangUpdated(gang))
    for member in pods:
        state.apply(PodUpdated(member))
    return state


class Details(NamedTuple):
    """Additional fields of an event; `related` as kind/name."""

    type: str
    action: str
    related: str


class Recorded:
    """Events passed to an EventRecorder: (kind/name, reason, note)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []
        self.details: list[Details] = []
        self.behind = 0

    def drop_optional(self) -> bool:
        return False

    def record(
        self,
        regarding: ObjectReference,
        *,
        reason: str,
        action: str,
        note: str,
        type: str = "Normal",
        related: ObjectReference | None = None,
        behind: bool = False,
        once: bool = False,
        optional: bool = False,
    ) -> bool:
        self.events.append((f"{regarding.kind}/{regarding.name}", reason, note))
        self.behind += behind
        self.details.append(Details(type, action, f"{related.kind}/{related.name}" if related else ""))
        return True

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(about, reason) for about, reason, _ in self.events]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
