"""Volumes in a pod's spec that affect where it can run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.dialects.core import PodObject, VolumeObject
from phalanx.dialects.storage.csi import inline_source
from phalanx.model.volumes import Disk


class ClaimUse(msgspec.Struct, frozen=True):
    """PersistentVolumeClaim that a pod uses; `own` marks one that is created for the pod alone (a generic ephemeral
    volume)."""

    name: str
    own: bool = False


class NamedVolumes(msgspec.Struct, frozen=True):
    """Relevant volumes of a pod. `attached` are (driver, handle) of disks in its spec, `disks` the exclusive
    ones."""

    claims: tuple[ClaimUse, ...] = ()
    disks: tuple[Disk, ...] = ()
    attached: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.claims or self.disks or self.attached)


def named_volumes(pod: PodObject) -> NamedVolumes:
    if not pod.spec.volumes:
        return NONE_NAMED
    claims, disks, attached = [], [], []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            claims.append(ClaimUse(_text(volume.persistent_volume_claim, "claimName")))
        elif volume.ephemeral is not None:
            claims.append(ClaimUse(f"{pod.metadata.name}-{volume.name}", own=True))
        else:
            disk = _disk(volume)
            if disk is not None:
                disks.append(disk)
            source = inline_source(msgspec.to_builtins(volume)) if _is_attached(volume) else None
            if source is not None:
                attached.append(source)
    if not claims and not disks and not attached:
        return NONE_NAMED
    return NamedVolumes(tuple(dict.fromkeys(claims)), tuple(dict.fromkeys(disks)), tuple(dict.fromkeys(attached)))


NONE_NAMED = NamedVolumes()


def _is_attached(volume: VolumeObject) -> bool:
    return (
        volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.azure_disk is not None
        or volume.cinder is not None
        or volume.portworx_volume is not None
    )


def _disk(volume: VolumeObject) -> Disk | None:
    if volume.gce_persistent_disk is not None:
        disk = volume.gce_persistent_disk
        return Disk("gce", _text(disk, "pdName"), _flag(disk, "readOnly"))
    if volume.aws_elastic_block_store is not None:
        return Disk("ebs", _text(volume.aws_elastic_block_store, "volumeID"))
    if volume.iscsi is not None:
        return Disk("iscsi", _text(volume.iscsi, "iqn"), _flag(volume.iscsi, "readOnly"))
    if volume.rbd is not None:
        disk = volume.rbd
        name = f"{_text(disk, 'pool') or 'rbd'}/{_text(disk, 'image')}"
        monitors = disk.get("monitors") if isinstance(disk, Mapping) else None
        known = [monitor for monitor in monitors if isinstance(monitor, str)] if isinstance(monitors, list) else []
        return Disk("rbd", name, _flag(disk, "readOnly"), tuple(sorted(set(known))))
    return None


def _text(source: Any, name: str) -> str:
    value = source.get(name) if isinstance(source, Mapping) else None
    return value if isinstance(value, str) else ""


def _flag(source: Any, name: str) -> bool:
    return isinstance(source, Mapping) and source.get(name) is True
