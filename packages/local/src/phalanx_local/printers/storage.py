"""`kubectl get` columns of volumes, storage classes and CSI drivers."""

from __future__ import annotations

from typing import Any

from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.printers.base import AGE, NAME, Printer, age, column
from phalanx_local.printers.cluster import ACCESS


def _volume(volume: Json, now: float) -> list[Any]:
    spec, status = mapping(volume.get("spec")), mapping(volume.get("status"))
    reference = mapping(spec.get("claimRef"))
    claim = f"{text(reference.get('namespace'))}/{text(reference.get('name'))}" if reference else ""
    return [
        metadata(volume).get("name", ""),
        text(mapping(spec.get("capacity")).get("storage")),
        ",".join(ACCESS.get(text(mode), text(mode)) for mode in sequence(spec.get("accessModes"))),
        text(spec.get("persistentVolumeReclaimPolicy")),
        "Terminating" if "deletionTimestamp" in metadata(volume) else text(status.get("phase")),
        claim,
        text(spec.get("storageClassName")),
        text(spec.get("volumeAttributesClassName")) or "<unset>",
        text(status.get("reason")),
        age(volume, now),
        text(spec.get("volumeMode")) or "<unset>",
    ]


VOLUME_PRINTER = Printer(
    (
        NAME,
        column("Capacity"),
        column("Access Modes"),
        column("Reclaim Policy"),
        column("Status"),
        column("Claim"),
        column("StorageClass"),
        column("VolumeAttributesClass"),
        column("Reason"),
        AGE,
        column("VolumeMode", priority=1),
    ),
    _volume,
)


def _storage_class(item: Json, now: float) -> list[Any]:
    name = text(metadata(item).get("name"))
    annotations = mapping(metadata(item).get("annotations"))
    if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
        name += " (default)"
    return [
        name,
        text(item.get("provisioner")),
        text(item.get("reclaimPolicy")) or "Delete",
        text(item.get("volumeBindingMode")) or "Immediate",
        "true" if item.get("allowVolumeExpansion") is True else "false",
        age(item, now),
    ]


STORAGE_CLASS_PRINTER = Printer(
    (
        NAME,
        column("Provisioner"),
        column("ReclaimPolicy"),
        column("VolumeBindingMode"),
        column("AllowVolumeExpansion"),
        AGE,
    ),
    _storage_class,
)
