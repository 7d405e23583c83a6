"""One node as its kubelet sees it: its capacity, its admitted pods, and its admission checks."""

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
    """Capacity, labels, taints and address of a Node object; amounts are in the units of
    `phalanx.model.resources`."""

    allocatable: Mapping[str, int]
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    address: str = ""


def read_offer(node: core_v1.V1Node) -> tuple[NodeOffer, list[str]]:
    """Return the capacity, labels and taints of a Node object, and a line for each unreadable quantity, which
    counts as absent.

    The taints of an unready kubelet are omitted: this agent is the kubelet, and it is ready.
    """
    amounts, problems = read_amounts(node.status.allocatable, f"node {node.metadata.name}: status.allocatable")
    taints = tuple(
        Taint(taint.key, taint.value or "", taint.effect)
        for taint in node.spec.taints or ()
        if taint.key not in UNREADY_TAINTS
    )
    return NodeOffer(amounts, node.metadata.labels or {}, taints, node.address), problems


class KubeletNode:
    """Admission of pods on one node. A pod in `unconfirmed` does not fit by the cached state; PodWorkers reads the
    node's pods from the API before it rejects such a pod."""

    def __init__(self, name: str, offer: NodeOffer) -> None:
        self.name = name
        self.info = NodeInfo(offer.allocatable)
        self.unconfirmed: dict[str, core_v1.V1Pod] = {}
        self.deferred: dict[str, PodCharge] = {}  # resizes that wait for free capacity
        self.draining = False
        self.address = offer.address
        self._place = NodeFacts(name, offer.labels, offer.taints)

    def update(self, offer: NodeOffer) -> None:
        self.info.resize(offer.allocatable)
        self.address = offer.address
        self._place = NodeFacts(self.name, offer.labels, offer.taints)

    def admit(self, pod: core_v1.V1Pod) -> Rejection | None:
        """Admit the pod to the node, or return its rejection. The kubelet checks capacity first, then selectors and
        taints."""
        if self.draining:
            return _SHUTDOWN
        uid, charge = pod.metadata.uid, charge_of(pod)
        rejection = self.info.check(uid, charge) or objection(self._place, pod.spec)
        if rejection is None:
            self.info.occupy(uid, charge)
        return rejection

    def resize(self, uid: str, wanted: PodCharge) -> Rejection | None:
        """Resize an admitted pod to its new requests, or return the rejection Infeasible (never fits here) or
        Deferred (can fit later)."""
        self.deferred.pop(uid, None)
        rejection = self.info.check(uid, wanted)
        if rejection is None:
            self.info.occupy(uid, wanted)
            return None
        message = rejection.message.removeprefix("Pod was rejected: ")
        if NodeInfo(self.info.allocatable).check(uid, PodCharge(wanted.requests)) is not None:
            return Rejection("Infeasible", message)
        self.deferred[uid] = wanted
        return Rejection("Deferred", message)

    def release(self, uid: str) -> None:
        self.deferred.pop(uid, None)
        self.info.release(uid)
