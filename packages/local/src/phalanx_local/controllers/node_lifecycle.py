"""Taints for a node's conditions, and the condition Ready=Unknown for nodes without heartbeats.

https://kubernetes.io/docs/concepts/architecture/nodes/ : schedulers check taints, not Ready. This controller evicts
no pods: without an agent on the node, their deletion would never complete.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from phalanx_local.clock import parse_timestamp
from phalanx_local.controllers.base import Controller
from phalanx_local.endpoints.subresources import set_condition
from phalanx_local.objects import Json, dig, mapping, sequence, text
from phalanx_local.storage.records import Change
from phalanx_local.storage.store import Collection
from phalanx_local.strategies.nodes import NOT_READY

NODES: Final = "/nodes"
LEASES: Final = "coordination.k8s.io/leases"
LEASE_NAMESPACE: Final = "kube-node-lease"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_GRACE_SECONDS: Final = 50.0
_PRESSURES: Final = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_OURS: Final = frozenset((NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURES.values()))


class NodeLifecycle(Controller):
    """Controller of node conditions and taints; keys are names of nodes."""

    def observe(self, collection: Collection, change: Change) -> None:
        if collection.storage == NODES:
            if change.new is not None:
                self.add(change.new.name)
        elif collection.storage == LEASES and change.old is None and change.key[0] == LEASE_NAMESPACE:
            self.add(change.key[1])

    def resync(self) -> None:
        nodes = self.api.store.collections.get(NODES)
        for record in list(nodes.records.values()) if nodes is not None else ():
            self.add(record.name)

    def reconcile(self, key: Hashable) -> None:
        name = str(key)
        record = self.current(NODES, ("", name))
        if record is None:
            return
        node = record.load()
        self._check_lease(name, node)
        spec = mapping(node.setdefault("spec", {}))
        before = sequence(spec.get("taints"))
        after = self._taints(node, before)
        if after:
            spec["taints"] = after
        else:
            spec.pop("taints", None)
        self.save(self.types()[NODES], record, node)

    def _check_lease(self, name: str, node: Json) -> None:
        """Set Ready to Unknown for a node that does not renew its lease. Nodes that never had a lease are not
        changed.
        """
        lease = self.api.find("coordination.k8s.io", "leases", LEASE_NAMESPACE, name)
        renewed = parse_timestamp(dig(lease, "spec", "renewTime"))
        if renewed is None:
            return
        remaining = renewed + _GRACE_SECONDS - self.api.clock.now()
        if remaining > 0:
            self.add_later(name, remaining + 0.001)
        elif _ready(node) in ("True", "False"):
            condition = {
                "type": "Ready",
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastHeartbeatTime": None,
            }
            set_condition(mapping(node.setdefault("status", {})), condition, self.api.now())

    def _taints(self, node: Json, before: list[Any]) -> list[Any]:
        ready = _ready(node)
        wanted: list[tuple[str, str]] = []
        if ready == "False":
            wanted += [(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]
        elif ready == "Unknown":
            wanted += [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
        elif ready is None:
            # No kubelet has reported yet: the taint from admission is preserved.
            wanted += [(NOT_READY, "NoSchedule")] if _has(before, NOT_READY, "NoSchedule") else []
        if dig(node, "spec", "unschedulable") is True:
            wanted.append((UNSCHEDULABLE, "NoSchedule"))
        for item in map(mapping, sequence(dig(node, "status", "conditions"))):
            taint = _PRESSURES.get(text(item.get("type")))
            if taint is not None and item.get("status") == "True":
                wanted.append((taint, "NoSchedule"))
        unmanaged = [
            item
            for item in before
            if mapping(item).get("key") not in _OURS
            or (mapping(item).get("key"), mapping(item).get("effect")) in wanted
        ]
        for taint, effect in wanted:
            if not _has(unmanaged, taint, effect):
                unmanaged.append({"key": taint, "effect": effect, "timeAdded": self.api.now()})
        return unmanaged


def _ready(node: Json) -> str | None:
    for item in map(mapping, sequence(dig(node, "status", "conditions"))):
        if item.get("type") == "Ready":
            return text(item.get("status"))
    return None


def _has(taints: list[Any], key: str, effect: str) -> bool:
    return any(mapping(item).get("key") == key and mapping(item).get("effect") == effect for item in taints)
