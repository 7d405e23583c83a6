"""One node as its kubelet sees it: what it offers, who is on it, whom it would not take."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.selectors import Taint
from phalanx_local.nodeagent import core_v1
from phalanx_local.nodeagent.capacity import NodeInfo, PodCharge, Rejection, read_amounts
from phalanx_local.nodeagent.node_objects import UNREADY_TAINTS
from phalanx_local.nodeagent.placement import NodeFacts, objection
from phalanx_local.nodeagent.requests import charge_of

_SHUTDOWN = Rejection("NodeShutdown", "Pod was rejected: Pod was rejected as the node is shutting down.")


class NodeOffer(msgspec.Struct, frozen=True):
    """What a node object says: amounts in the units of `phalanx.model.resources`, labels, taints, its address."""

    allocatable: Mapping[str, int]
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    address: str = ""


def read_offer(node: core_v1.V1Node) -> tuple[NodeOffer, list[str]]:
    """The offer, and a line for each amount that cannot be read (it counts as absent).

    The taints of a silent kubelet are left out: this is the kubelet, and it speaks.
    """
    amounts, problems = read_amounts(node.status.allocatable, f"node {node.metadata.name}: status.allocatable")
    taints = tuple(
        Taint(taint.key, taint.value or "", taint.effect)
        for taint in node.spec.taints or ()
        if taint.key not in UNREADY_TAINTS
    )
    return NodeOffer(amounts, node.metadata.labels or {}, taints, node.address), problems


class KubeletNode:
    """The pods of one node. `unconfirmed` pods seem not to fit; the API is asked (see PodWorkers)."""

    def __init__(self, name: str, offer: NodeOffer) -> None:
        self.name = name
        self.info = NodeInfo(offer.allocatable)
        self.unconfirmed: dict[str, core_v1.V1Pod] = {}
        self.deferred: dict[str, PodCharge] = {}  # resizes that wait for room
        self.draining = False
        self.address = offer.address
        self._place = NodeFacts(name, offer.labels, offer.taints)

    def update(self, offer: NodeOffer) -> None:
        self.info.resize(offer.allocatable)
        self.address = offer.address
        self._place = NodeFacts(self.name, offer.labels, offer.taints)

    def admit(self, pod: core_v1.V1Pod) -> Rejection | None:
        """Take the pod in, or say why not. The kubelet looks at room first, then at selectors and taints."""
        if self.draining:
            return _SHUTDOWN
        uid, charge = pod.metadata.uid, charge_of(pod)
        rejection = self.info.check(uid, charge) or objection(self._place, pod.spec)
        if rejection is None:
            self.info.occupy(uid, charge)
        return rejection

    def resize(self, uid: str, wanted: PodCharge) -> Rejection | None:
        """Charge a pod of ours anew, or say why not: Infeasible on this node, or Deferred until there is room."""
        self.deferred.pop(uid, None)
        short = self.info.check(uid, wanted)
        if short is None:
            self.info.occupy(uid, wanted)
            return None
        message = short.message.removeprefix("Pod was rejected: ")
        if NodeInfo(self.info.allocatable).check(uid, PodCharge(wanted.requests)) is not None:
            return Rejection("Infeasible", message)
        self.deferred[uid] = wanted
        return Rejection("Deferred", message)

    def release(self, uid: str) -> None:
        self.deferred.pop(uid, None)
        self.info.release(uid)
