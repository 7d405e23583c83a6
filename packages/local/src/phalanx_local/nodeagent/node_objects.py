"""Objects that a kubelet writes for its node: the Node, its status and its Lease."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import msgspec

from phalanx.kube.paths import Resource
from phalanx.kube.timestamps import format_micro_time, format_time
from phalanx_local.nodeagent.core_v1 import V1Node, V1NodeStatus
from phalanx_local.nodeagent.node_file import NodeFileEntry

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
EVENTS = Resource("", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
LEASE_NAMESPACE = "kube-node-lease"

#: Label or annotation of nodes that this agent adopts.
FAKE_MARK = "phalanx.dev/fake"

#: Taints of a node without a report of its kubelet; the API server adds the first one at creation.
UNREADY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

LEASE_SECONDS = 40
HOST_ADDRESS = "127.0.0.1"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "the phalanx node agent is posting ready status"),
)


class Machine(msgspec.Struct, frozen=True):
    """Properties that all nodes of one agent share. `log_port` is the port of the log server, 0 without a log
    server."""

    log_port: int = 0
    version: str = "0"
    architecture: str = "amd64"
    system: str = "linux"
    kernel: str = ""

    @classmethod
    def here(cls, log_port: int) -> Machine:
        kind = platform.machine()
        try:
            version = metadata.version("phalanx-scheduler")
        except metadata.PackageNotFoundError:  # a source tree that is not installed
            version = "0"
        architecture = _ARCHITECTURES.get(kind, kind)
        return cls(log_port, version, architecture, platform.system().lower(), platform.release())


def node_object(spec: NodeFileEntry, machine: Machine, address: str, now: float) -> dict[str, Any]:
    """Return the Node object with which the agent registers a node, healthy from the start."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, **metadata_of(spec, machine)},
        "spec": {"taints": list(spec.taints), "unschedulable": spec.unschedulable},
        "status": {**resources_status(spec), **node_status(None, machine, address, now)},
    }


def metadata_of(spec: NodeFileEntry, machine: Machine) -> dict[str, Any]:
    standard = {
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/os": machine.system,
        "kubernetes.io/arch": machine.architecture,
    }
    return {"labels": standard | spec.labels, "annotations": dict(spec.annotations)}


def metadata_patch(old: NodeFileEntry | None, new: NodeFileEntry, machine: Machine) -> dict[str, Any]:
    """Return a merge patch with the node's labels and annotations of the nodes file; it removes names that the file
    dropped."""
    patch = metadata_of(new, machine)
    for field, before in (("labels", old.labels), ("annotations", old.annotations)) if old else ():
        patch[field] = dict.fromkeys(before) | patch[field]
    return patch


def resources_status(spec: NodeFileEntry) -> dict[str, Any]:
    return {"capacity": dict(spec.capacity), "allocatable": dict(spec.allocatable)}


def resources_patch(spec: NodeFileEntry, old: V1Node | None) -> dict[str, Any]:
    """Return a status patch with the node's capacity and allocatable of the nodes file; it removes resources that
    the file dropped."""
    status: dict[str, Any] = resources_status(spec)
    if old is not None:
        for field, before in (("capacity", old.status.capacity), ("allocatable", old.status.allocatable)):
            status[field] |= {name: None for name in before or {} if name not in status[field]}
    return status


def following_patch(node: V1Node, seen: V1NodeStatus | None) -> dict[str, Any] | None:
    """Return a patch that adapts a node's allocatable to its patched capacity, as a kubelet does; None for no
    change.

    A resource in only one of the two is new or removed. An allocatable below the capacity can be intended (a broken
    device): it is adapted only if both were equal in `seen`.
    """
    capacity, allocatable = node.status.capacity or {}, node.status.allocatable or {}
    if not capacity:
        return None
    before = (seen.capacity or {}, seen.allocatable or {}) if seen is not None else ({}, {})
    patch: dict[str, Any] = {name: amount for name, amount in capacity.items() if name not in allocatable}
    patch |= {name: None for name in allocatable if name not in capacity}
    for name in capacity.keys() & allocatable.keys():
        was = before[0].get(name)
        if was is not None and was == before[1].get(name) == allocatable[name] != capacity[name]:
            patch[name] = capacity[name]
    return {"allocatable": patch} if patch else None


def node_status(old: V1Node | None, machine: Machine, address: str, now: float) -> dict[str, Any]:
    """Return conditions, addresses and other status fields of a node's heartbeat. An unchanged condition keeps its
    transition time."""
    before = {c.type: c for c in (old.status.conditions if old else None) or ()}
    conditions = []
    for kind, status, reason, message in _HEALTHY:
        known = before.get(kind)
        unchanged_since = known is not None and known.status == status and known.last_transition_time
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": format_time(now),
                "lastTransitionTime": unchanged_since or format_time(now),
            }
        )
    status_body: dict[str, Any] = {
        "conditions": conditions,
        # API servers read logs at a Hostname first, then at an InternalDNS; this machine serves all logs.
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "InternalDNS", "address": "localhost"},
        ],
        "nodeInfo": {
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": machine.kernel,
            "osImage": "phalanx node agent",
            "containerRuntimeVersion": f"phalanx://{machine.version}",
            "kubeletVersion": f"v1.36.0-phalanx.{machine.version}",
            "kubeProxyVersion": "",
            "operatingSystem": machine.system,
            "architecture": machine.architecture,
        },
    }
    if machine.log_port:
        status_body["daemonEndpoints"] = {"kubeletEndpoint": {"Port": machine.log_port}}
    return status_body


def is_healthy(node: V1Node) -> bool:
    """Return whether the node has the conditions that this agent writes."""
    shown = {c.type: c.status for c in node.status.conditions or ()}
    return all(shown.get(kind) == status for kind, status, _, _ in _HEALTHY)


def is_marked(node: V1Node) -> bool:
    """Return whether a label or annotation of the node requests that the agent simulates its kubelet."""
    notes = (node.metadata.labels or {}, node.metadata.annotations or {})
    return any(values.get(FAKE_MARK) == "true" for values in notes)


def untainted_patch(node: V1Node) -> dict[str, Any] | None:
    """Return a merge patch that removes the taints of an unready kubelet from a node; None if it has none of them.

    The list of taints is replaced as a whole, so the patch is valid only for the resourceVersion that was read.
    """
    taints = node.spec.taints or []
    remaining = [taint for taint in taints if taint.key not in UNREADY_TAINTS]
    if len(remaining) == len(taints):
        return None
    return {
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "spec": {"taints": msgspec.to_builtins(remaining) or None},
    }


def taints_patch(node: V1Node, old: NodeFileEntry | None, new: NodeFileEntry) -> dict[str, Any] | None:
    """Return a merge patch from the nodes file's old taints to its new taints, with other taints unchanged; None
    for no change."""

    def identity(taint: dict[str, Any]) -> tuple[str, str]:
        return taint["key"], taint["effect"]

    replaced = {identity(taint) for taint in (*(old.taints if old else ()), *new.taints)}
    current: list[dict[str, Any]] = [
        {key: value for key, value in msgspec.to_builtins(taint).items() if value is not None}
        for taint in node.spec.taints or ()
    ]
    wanted = [taint for taint in current if identity(taint) not in replaced] + list(new.taints)
    if sorted(map(_canonical, wanted)) == sorted(map(_canonical, current)):
        return None
    return {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": wanted or None}}


def _canonical(taint: dict[str, Any]) -> str:
    return msgspec.json.encode({k: v for k, v in taint.items() if v and k != "timeAdded"}, order="sorted").decode()


def lease_object(name: str, node_uid: str, now: float) -> dict[str, Any]:
    """Return the heartbeat Lease of a node; the garbage collector deletes it with the node."""
    metadata: dict[str, Any] = {"name": name, "namespace": LEASE_NAMESPACE}
    if node_uid:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}]
    return {
        "apiVersion": LEASES.api_version,
        "kind": "Lease",
        "metadata": metadata,
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format_micro_time(now),
        },
    }


def renewal(now: float) -> dict[str, Any]:
    """Return a merge patch that renews a node's Lease."""
    return {"spec": {"renewTime": format_micro_time(now), "leaseDurationSeconds": LEASE_SECONDS}}
