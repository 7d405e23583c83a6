"""What a pod's volumes ask of its node, and what is known of the storage that could answer.

Needs are stated without the names of claims wherever a name does not matter, so that the pods of one template are
one class although each has a claim of its own; the names are the pod's (`PodVolumes`). Facts are what the books of
volumes, attachments and disks learn from the API.
"""

from __future__ import annotations

import msgspec

from phalanx.model.preparations import Preparation
from phalanx.model.selectors import NodeSelectorTerm, Requirement

# The OR of its terms; in a term each label key must have one of the values.
Topologies = tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]


class VolumeNeed(msgspec.Struct, frozen=True, cache_hash=True):
    """One thing that a volume of a pod demands of its node. The kinds of it are subclasses."""


class UnusableVolume(VolumeNeed, frozen=True, cache_hash=True):
    """A volume for which no node will do; `reason` in kube-scheduler's words."""

    reason: str


class BoundVolume(VolumeNeed, frozen=True, cache_hash=True):
    """A claim that has its volume: the volume's node affinity (the OR of its terms, None for none) and its zones:
    pairs of a label key and the values of which a node that has any zone must have one."""

    affinity: tuple[NodeSelectorTerm, ...] | None = None
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()


class UnboundClaim(VolumeNeed, frozen=True, cache_hash=True):
    """A claim that is bound when its pod is placed (WaitForFirstConsumer).

    `size` is in bytes; `modes` are the access modes, sorted; `block` tells raw devices from file systems;
    `attributes` names its VolumeAttributesClass. `selector` is what it asks of a volume's labels. `node` is where
    it is being provisioned already, `volume` the one that is reserved for it by name.
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
    """A volume that a CSI driver has to attach to the node. `volume` says which, as in `PodVolumes.attached`, only
    where other pods use the same one; a volume of the pod's own is one more wherever the pod goes."""

    driver: str
    volume: tuple[str, str] | None = None


class Disk(VolumeNeed, frozen=True, cache_hash=True):
    """A disk named in the pod itself, which one pod on a node may write and several may read if `read_only`.

    `kind` is "gce", "ebs", "iscsi" or "rbd"; `name` what tells disks of a kind apart; those of kind rbd are the
    same only if they share one of `monitors`.
    """

    kind: str
    name: str
    read_only: bool = False
    monitors: tuple[str, ...] = ()

    def conflicts_with(self, other: Disk) -> bool:
        """Whether two pods with these may not share a node (kube-scheduler 1.36, VolumeRestrictions)."""
        if (self.kind, self.name) != (other.kind, other.name):
            return False
        if self.kind == "rbd" and not set(self.monitors) & set(other.monitors):
            return False
        return self.kind == "ebs" or not (self.read_only and other.read_only)


class SoleUse(VolumeNeed, frozen=True, cache_hash=True):
    """A claim with access mode ReadWriteOncePod: `namespace/name`."""

    claim: str


class PodVolumes(msgspec.Struct, frozen=True):
    """What the volumes of one pod are called: the names of its claims to be bound, in the order of the class's
    `UnboundClaim`s, and what is attached to its node for it: ("", namespace/name) of a claim, or (driver, handle)
    of a disk that the pod names itself."""

    unbound: tuple[str, ...] = ()
    attached: tuple[tuple[str, str], ...] = ()


NO_VOLUMES = PodVolumes()


class Volume(msgspec.Struct, frozen=True):
    """A PersistentVolume that claims may get: one that is free, or one that is reserved for the claim that names
    it (`UnboundClaim.volume`)."""

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
        """The smallest that does is taken first."""
        return self.size


class VolumeGone(msgspec.Struct, frozen=True):
    """A PersistentVolume that no claim may get any more."""

    name: str


class StorageClass(msgspec.Struct, frozen=True):
    """`provisioner` is "" where nothing can be provisioned. `topologies` is an OR of terms, () for anywhere."""

    name: str
    provisioner: str = ""
    topologies: Topologies = ()


class StorageClassGone(msgspec.Struct, frozen=True):
    name: str


class StorageCapacity(msgspec.Struct, frozen=True):
    """How large a volume of a class may be (bytes) where the nodes' labels meet `topology`."""

    key: str
    storage_class: str
    limit: int
    topology: tuple[Requirement, ...] = ()


class StorageCapacityGone(msgspec.Struct, frozen=True):
    key: str


class StorageDriver(msgspec.Struct, frozen=True):
    """A CSI driver: whether it publishes its capacity, and whether pods must keep off nodes without it."""

    name: str
    tracks_capacity: bool = False
    needs_node_plugin: bool = False


class ProvisioningTrouble(msgspec.Struct, frozen=True):
    """A provisioner has just sent a claim of the class and of `size` bytes back because of the node; or, when it no
    longer `lasts`, it may be asked again."""

    storage_class: str
    node: str
    size: int = 0
    lasts: bool = True


class NodeStorage(msgspec.Struct, frozen=True):
    """What a CSINode says: the drivers of a node, and how many volumes those with a limit attach."""

    node: str
    drivers: tuple[str, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()


class ClaimAttachment(msgspec.Struct, frozen=True):
    """The driver and the handle of the volume of a claim (`namespace/name`); the driver is "" where none counts it.
    What is not provisioned yet has a handle that nothing else has."""

    claim: str
    driver: str = ""
    handle: str = ""


class NodeAttachments(msgspec.Struct, frozen=True):
    """(driver, handle) of all that is attached to a node, by its VolumeAttachments."""

    node: str
    volumes: tuple[tuple[str, str], ...] = ()


class BindClaim(Preparation, frozen=True):
    """A claim must be bound before its pod is: to `volume` where that is chosen, else to one that is provisioned
    for `node`."""

    namespace: str
    name: str
    node: str
    volume: str = ""
