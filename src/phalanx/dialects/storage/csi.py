"""Translation of in-tree volumes to the CSI drivers that replaced them (k8s.io/csi-translation-lib, 1.36).

Limited to the input of attach limits: the driver's name and the handle. Kubelets also translate Azure File and
vSphere, but kube-scheduler does not count them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

# (driver, handle)
Handle = tuple[str, str]
Source = Mapping[str, Any]

_UNSPECIFIED = "UNSPECIFIED"
_ZONES = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_EBS_VOLUME = re.compile(r"vol-[^/]*")

GCE, EBS, AZURE, CINDER, PORTWORX = (
    "pd.csi.storage.gke.io",
    "ebs.csi.aws.com",
    "disk.csi.azure.com",
    "cinder.csi.openstack.org",
    "pxd.portworx.com",
)
_DRIVER_OF = {
    "kubernetes.io/gce-pd": GCE,
    "kubernetes.io/aws-ebs": EBS,
    "kubernetes.io/azure-disk": AZURE,
    "kubernetes.io/cinder": CINDER,
    "kubernetes.io/portworx-volume": PORTWORX,
}
# Translated too, but not counted.
_UNCOUNTED = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})


def driver_of(provisioner: str) -> str:
    """Return the CSI driver for a StorageClass's provisioner; "" if its volumes do not count towards attach
    limits."""
    if provisioner in _UNCOUNTED:
        return ""
    return _DRIVER_OF.get(provisioner, provisioner)


def csi_source(spec: Source, labels: Mapping[str, str]) -> Handle | None:
    """Return driver and handle of a PersistentVolume; None if it does not count towards attach limits."""
    stated = spec.get("csi")
    if isinstance(stated, Mapping):
        return _known(_text(stated, "driver"), _text(stated, "volumeHandle"))
    disk = spec.get("gcePersistentDisk")
    if isinstance(disk, Mapping):
        return _gce(_text(disk, "pdName"), next((labels[key] for key in _ZONES if labels.get(key)), ""))
    return _translated(spec)


def inline_source(volume: Source) -> Handle | None:
    """Return driver and handle of a disk in a pod's spec; None if it does not count towards attach limits."""
    disk = volume.get("gcePersistentDisk")
    if isinstance(disk, Mapping):
        return _gce(_text(disk, "pdName"), "")
    return _translated(volume)


def _translated(source: Source) -> Handle | None:
    for field, driver, handle in _SOURCES:
        stated = source.get(field)
        if isinstance(stated, Mapping):
            return _known(driver, handle(stated))
    return None


def _known(driver: str, handle: str) -> Handle | None:
    return (driver, handle) if driver and handle else None


def _gce(name: str, zones: str) -> Handle | None:
    """Return the CSI driver and handle of a GCE disk; a disk with several zones belongs to their region."""
    known_zones = [zone for zone in zones.split("__") if zone]
    if len(known_zones) > 1:
        regions = {zone.rpartition("-")[0] for zone in known_zones if zone.count("-") == 2}
        if len(regions) != 1 or any(zone.count("-") != 2 for zone in known_zones):
            return None
        return GCE, f"projects/{_UNSPECIFIED}/regions/{regions.pop()}/disks/{name}"
    return GCE, f"projects/{_UNSPECIFIED}/zones/{known_zones[0] if known_zones else _UNSPECIFIED}/disks/{name}"


def _ebs(source: Source) -> str:
    """Return the volume id of an EBS volume; both `vol-...` and `aws://zone/vol-...` are in use."""
    stated = _text(source, "volumeID")
    if not stated.startswith("aws://"):
        return stated
    volume = urlsplit(stated).path.strip("/")
    return volume if _EBS_VOLUME.fullmatch(volume) else ""


def _azure(source: Source) -> str:
    kind = source.get("kind")
    managed = kind is None or (isinstance(kind, str) and kind.lower() == "managed")
    return _text(source, "diskURI") if managed else ""


_SOURCES: tuple[tuple[str, str, Callable[[Source], str]], ...] = (
    ("awsElasticBlockStore", EBS, _ebs),
    ("azureDisk", AZURE, _azure),
    ("cinder", CINDER, lambda source: _text(source, "volumeID")),
    ("portworxVolume", PORTWORX, lambda source: _text(source, "volumeID")),
)


def _text(source: Source, name: str) -> str:
    value = source.get(name)
    return value if isinstance(value, str) else ""
