"""Strategy of nodes."""

from __future__ import annotations

from typing import Final

from phalanx_local.objects import Json, mapping, sequence
from phalanx_local.strategies.base import RestStrategy, Write
from phalanx_local.strategies.pods import spell_conditions

NOT_READY: Final = "node.kubernetes.io/not-ready"
_NODE_INFO: Final = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


class NodeStrategy(RestStrategy):
    """Strategy of Nodes. Without allocatable, the whole capacity is allocatable, as for a kubelet without
    reservations.

    With `taints` a new node is not ready until its status is ready, as with the admission plugin
    TaintNodesByCondition. A node that is created ready does not get the taint.
    """

    def __init__(self, *, taints: bool) -> None:
        self._taints = taints

    status_keeps_metadata = True
    field_labels = frozenset(("spec.unschedulable",))

    def fields(self, obj: Json) -> dict[str, str]:
        unschedulable = mapping(obj.get("spec")).get("unschedulable") is True
        return {"spec.unschedulable": "true" if unschedulable else "false"}

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if not self._taints or _is_ready(obj):
            return
        taints = spec.setdefault("taints", [])
        if not any(item.get("key") == NOT_READY and item.get("effect") == "NoSchedule" for item in taints):
            taints.append({"key": NOT_READY, "effect": "NoSchedule"})

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        obj.setdefault("spec", {})

    def prepare_status(self, obj: Json, old: Json, write: Write) -> None:
        status = obj.get("status")
        obj["status"] = _complete(status if isinstance(status, dict) else {})

    def initial_status(self, obj: Json, write: Write) -> Json:
        # Unlike most kinds a node can be created with its status, as the kubelet does.
        status = obj.get("status")
        return _complete(status if isinstance(status, dict) else {})


def _complete(status: Json) -> Json:
    """Return a Node's status with all structs that Go embeds by value."""
    capacity = status.get("capacity")
    if isinstance(capacity, dict) and "allocatable" not in status:
        status["allocatable"] = dict(capacity)
    spell_conditions(status, "lastHeartbeatTime", "lastTransitionTime")
    endpoints = status.setdefault("daemonEndpoints", {})
    endpoints.setdefault("kubeletEndpoint", {"Port": 0})
    info = status.setdefault("nodeInfo", {})
    for field in _NODE_INFO:
        info.setdefault(field, "")
    return status


def _is_ready(node: Json) -> bool:
    return any(
        mapping(item).get("type") == "Ready" and mapping(item).get("status") == "True"
        for item in sequence(mapping(node.get("status")).get("conditions"))
    )
