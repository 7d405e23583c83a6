"""A cluster as lists of objects in the form that kubectl shows, and the plainest questions about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Wire = dict[str, Any]


@dataclass
class World:
    nodes: list[Wire] = field(default_factory=list)
    pods: list[Wire] = field(default_factory=list)
    namespaces: list[Wire] = field(default_factory=list)
    claims: list[Wire] = field(default_factory=list)  # PersistentVolumeClaims
    volumes: list[Wire] = field(default_factory=list)  # PersistentVolumes
    classes: list[Wire] = field(default_factory=list)  # StorageClasses
    csi_nodes: list[Wire] = field(default_factory=list)
    csi_drivers: list[Wire] = field(default_factory=list)
    capacities: list[Wire] = field(default_factory=list)  # CSIStorageCapacities
    attachments: list[Wire] = field(default_factory=list)  # VolumeAttachments
    device_classes: list[Wire] = field(default_factory=list)
    slices: list[Wire] = field(default_factory=list)  # ResourceSlices
    resource_claims: list[Wire] = field(default_factory=list)

    def node(self, name: str) -> Wire | None:
        return named(self.nodes, name)

    def claim(self, namespace: str, name: str) -> Wire | None:
        return named(self.claims, name, namespace)

    def namespace_labels(self, name: str) -> dict[str, str]:
        namespace = named(self.namespaces, name)
        return labels_of(namespace) if namespace is not None else {}

    def tenants(self, node: str) -> list[Wire]:
        """The pods on a node, terminating ones and other schedulers' included; finished ones hold nothing."""
        return [pod for pod in self.running() if pod["spec"]["nodeName"] == node]

    def running(self) -> Iterator[Wire]:
        """Every pod that has a node and is not finished."""
        for pod in self.pods:
            if pod["spec"].get("nodeName") and not is_finished(pod):
                yield pod

    def waiting(self) -> Iterator[Wire]:
        """Every pod that asks for a node, whichever scheduler is to find it."""
        for pod in self.pods:
            metadata, spec = pod["metadata"], pod["spec"]
            gone = is_finished(pod) or metadata.get("deletionTimestamp")
            if not spec.get("nodeName") and not spec.get("schedulingGates") and not gone:
                yield pod


def named(objects: list[Wire], name: str, namespace: str = "") -> Wire | None:
    for entry in objects:
        if entry["metadata"]["name"] == name and entry["metadata"].get("namespace", "") == namespace:
            return entry
    return None


def labels_of(entry: Wire) -> dict[str, str]:
    return dict(entry["metadata"].get("labels") or {})


def namespace_of(entry: Wire) -> str:
    return str(entry["metadata"].get("namespace", ""))


def is_finished(pod: Wire) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_terminating(pod: Wire) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def containers_of(pod: Wire) -> list[Wire]:
    return list(pod["spec"].get("containers") or [])


def sidecars_of(pod: Wire) -> list[Wire]:
    """Init containers that go on running beside the main ones."""
    return [entry for entry in pod["spec"].get("initContainers") or [] if entry.get("restartPolicy") == "Always"]
