"""Requirements of a pod's volumes on its node, and the storage of the cluster.

Requirements contain no claim names unless the name matters, so that the pods of one template are one class although
each has its own claim; `PodVolumes` contains the names. The allocators of volumes, attachments and disks are
updated from the API.
"""

from __future__ import annotations

import msgspec

from phalanx.model.preparations import Preparation
from phalanx.model.selectors import NodeSelectorTerm, Requirement

# OR of terms; in a term each label key must have one of the values.
Topologies = tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]


class VolumeNeed(msgspec.Struct, frozen=True, cache_hash=True):
    """Requirement of one volume of a pod on its node; each kind is a subclass."""


class UnusableVolume(VolumeNeed, frozen=True, cache_hash=True):
    """Requirement of a volume that no node can serve; `reason` is in kube-scheduler's words."""

    reason: str


class BoundVolume(VolumeNeed, frozen=True, cache_hash=True):
    """Requirement of a bound PersistentVolumeClaim: the volume's node affinity (OR of its terms, None for none) and
    its zones.

    Zones are pairs of a label key and values; a node with any zone label must have one of the values.
    """

    affinity: tuple[NodeSelectorTerm, ...] | None = None
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()


class UnboundClaim(VolumeNeed, frozen=True, cache_hash=True):
    """Requirement of an unbound PersistentVolumeClaim, which is bound when its pod is placed
    (WaitForFirstConsumer).

    `size` is in bytes; `modes` are the sorted access modes; `block` distinguishes raw devices from file systems;
    `attributes` names its VolumeAttributesClass. `selector` matches a volume's labels. `node` is the node for
    which provisioning has started, `volume` the volume that is reserved for it by name.
    """

    storage_class: str
    size: int = 0
    modes: tuple[str, ...] = ()
    block: bool = False
    attributes: str = ""
    selector: tuple[Requirement, ...] = ()
    node: str = ""
    volume: str = ""


class Attachment(VolumeNeed, frozen=True, cache_hash=True):
    """Requirement of a volume that a CSI driver must attach to the node.

    `volume` identifies it, as in `PodVolumes.attached`, only if several pods share it; the pod's own volume is an
    additional attachment on any node.
    """

    driver: str
    volume: tuple[str, str] | None = None


class Disk(VolumeNeed, frozen=True, cache_hash=True):
    """Requirement of a disk that the pod names itself, which one pod on a node can write, or several can read if
    `read_only`.

    `kind` is "gce", "ebs", "iscsi" or "rbd"; `name` identifies the disk within its kind; two rbd disks are the
    same only if they share one of `monitors`.
    """

    kind: str
    name: str
    read_only: bool = False
    monitors: tuple[str, ...] = ()

    def conflicts_with(self, other: Disk) -> bool:
        """Return whether pods with these disks cannot share a node (kube-scheduler 1.36, VolumeRestrictions)."""
        if (self.kind, self.name) != (other.kind, other.name):
            return False
        if self.kind == "rbd" and not set(self.monitors) & set(other.monitors):
            return False
        return self.kind == "ebs" or not (self.read_only and other.read_only)


class SoleUse(VolumeNeed, frozen=True, cache_hash=True):
    """Requirement of a PersistentVolumeClaim with access mode ReadWriteOncePod: `namespace/name`."""

    claim: str


class PodVolumes(msgspec.Struct, frozen=True):
    """Names for the volume requirements of one pod.

    `unbound` are its claims to bind, in the order of the class's `UnboundClaim`s. `attached` are its attachments:
    ("", namespace/name) of a claim, or (driver, handle) of a disk that the pod itself names.
    """

    unbound: tuple[str, ...] = ()
    attached: tuple[tuple[str, str], ...] = ()


NO_VOLUMES = PodVolumes()


class Volume(msgspec.Struct, frozen=True):
    """PersistentVolume that is free, or reserved for the claim that names it (`UnboundClaim.volume`)."""

    name: str
    storage_class: str
    size: int
    modes: tuple[str, ...] = ()
    block: bool = False
    attributes: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    reserved: bool = False

    @property
    def rank(self) -> int:
        """Sort key of the volume, its size: the smallest suitable volume is used first."""
        return self.size


class VolumeGone(msgspec.Struct, frozen=True):
    """Event: no claim can be bound to a PersistentVolume any more."""

    name: str


class StorageClass(msgspec.Struct, frozen=True):
    """StorageClass; `provisioner` is "" without provisioning. `topologies` is an OR of terms, () for all nodes."""

    name: str
    provisioner: str = ""
    topologies: Topologies = ()


class StorageClassGone(msgspec.Struct, frozen=True):
    name: str


class StorageCapacity(msgspec.Struct, frozen=True):
    """Maximum size in bytes of a volume of a StorageClass on nodes whose labels match `topology`
    (CSIStorageCapacity)."""

    key: str
    storage_class: str
    limit: int
    topology: tuple[Requirement, ...] = ()


class StorageCapacityGone(msgspec.Struct, frozen=True):
    key: str


class StorageDriver(msgspec.Struct, frozen=True):
    """CSIDriver: whether it publishes its capacity, and whether pods require the driver on their node."""

    name: str
    tracks_capacity: bool = False
    needs_node_plugin: bool = False


class NodeStorage(msgspec.Struct, frozen=True):
    """CSINode: the drivers of a node, and the attachment limits of drivers with a limit."""

    node: str
    drivers: tuple[str, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()


class ClaimAttachment(msgspec.Struct, frozen=True):
    """Driver and handle of the volume of a PersistentVolumeClaim (`namespace/name`); the driver is "" if no
    attachment limit counts the volume.

    An unprovisioned volume has a unique handle.
    """

    claim: str
    driver: str = ""
    handle: str = ""


class NodeAttachments(msgspec.Struct, frozen=True):
    """(driver, handle) of all volumes that are attached to a node, from its VolumeAttachments."""

    node: str
    volumes: tuple[tuple[str, str], ...] = ()


class BindClaim(Preparation, frozen=True):
    """Preparation before a binding: bind a PersistentVolumeClaim to `volume` if one is chosen, else to a volume
    provisioned for `node`."""

    namespace: str
    name: str
    node: str
    volume: str = ""
