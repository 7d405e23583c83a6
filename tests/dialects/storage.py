"""Short builders of storage objects."""

from __future__ import annotations

from typing import Any

from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.storage.volumes import Volumes

KINDS = {kind.kind: kind.served_as(kind.versions[0]) for kind in Volumes.kinds}
Document = dict[str, Any]


def kind_of(document: Document) -> ServedKind:
    return KINDS[document["kind"]]


def claim(
    name: str,
    storage_class: str = "late",
    size: str = "1Gi",
    *,
    namespace: str = "default",
    volume: str = "",
    node: str = "",
    owner: str = "",
    phase: str = "",
    deleting: bool = False,
    **spec: Any,
) -> Document:
    """Build a claim: `volume` makes it bound, `node` is the selected node, `owner` the uid of its pod."""
    annotations = {"volume.kubernetes.io/selected-node": node} if node else {}
    if volume:
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
        spec["volumeName"] = volume
    metadata: Document = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": annotations}
    if owner:
        metadata["ownerReferences"] = [{"kind": "Pod", "uid": owner, "controller": True}]
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **spec,
        },
        "status": {"phase": phase or ("Bound" if volume else "Pending")},
    }


def volume(
    name: str,
    storage_class: str = "late",
    size: str = "1Gi",
    *,
    node: str = "",
    zone: str = "",
    labels: dict[str, str] | None = None,
    claimed: str = "",
    phase: str = "",
    **spec: Any,
) -> Document:
    """Build a volume: `node` or `zone` restricts its access; `claimed` is the name of the claim that it is reserved
    for.
    """
    for key, value in (("kubernetes.io/hostname", node), ("topology.kubernetes.io/zone", zone)):
        if value:
            term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    if claimed:
        spec["claimRef"] = {"namespace": "default", "name": claimed, "uid": f"uid-{claimed}"}
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "csi": {"driver": "csi.example.com", "volumeHandle": f"handle-{name}"},
            **spec,
        },
        "status": {"phase": phase or ("Bound" if claimed else "Available")},
    }


def storage_class(
    name: str = "late",
    *,
    provisioner: str = "csi.example.com",
    mode: str = "WaitForFirstConsumer",
    zones: tuple[str, ...] = (),
) -> Document:
    found: Document = {
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }
    if zones:
        expressions = [{"key": "topology.kubernetes.io/zone", "values": list(zones)}]
        found["allowedTopologies"] = [{"matchLabelExpressions": expressions}]
    return found


def csi_node(node: str, limit: int | None = None, driver: str = "csi.example.com") -> Document:
    entry: Document = {"name": driver, "nodeID": node}
    if limit is not None:
        entry["allocatable"] = {"count": limit}
    return {"kind": "CSINode", "metadata": {"name": node}, "spec": {"drivers": [entry]}}


def csi_driver(name: str = "csi.example.com", **spec: Any) -> Document:
    return {"kind": "CSIDriver", "metadata": {"name": name}, "spec": spec}


def capacity(name: str, storage_class: str, size: str, *, node: str = "", **fields: Any) -> Document:
    topology = {"matchLabels": {"kubernetes.io/hostname": node}} if node else {}
    return {
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "default"},
        "storageClassName": storage_class,
        "capacity": size,
        "nodeTopology": topology,
        **fields,
    }


def attachment(name: str, node: str, volume: str, driver: str = "csi.example.com") -> Document:
    source = {"persistentVolumeName": volume}
    return {
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {"attacher": driver, "nodeName": node, "source": source},
    }


def uses(*claims: str) -> list[Document]:
    return [{"name": f"d{at}", "persistentVolumeClaim": {"claimName": name}} for at, name in enumerate(claims)]


def own(name: str = "own") -> Document:
    return {"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
