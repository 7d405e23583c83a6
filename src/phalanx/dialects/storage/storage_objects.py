"""Storage objects as the scheduler reads them: claims, volumes, classes, CSI drivers and node attachments.

An unreadable field gets the strictest value: a node affinity without a match, a size beyond every volume, a class
that provisions nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from phalanx.dialects.core import NodeSelector
from phalanx.dialects.label_selectors import IllegibleSelectorError, Selector, read_selector
from phalanx.dialects.pods.pod_class import selector_term
from phalanx.dialects.reader import Document, is_whole
from phalanx.dialects.storage.csi import Handle, csi_source
from phalanx.model.selectors import NodeSelectorTerm
from phalanx.model.text.quantity import MAX_QUANTITY, QuantityError, parse_quantity
from phalanx.model.volumes import NodeStorage, StorageCapacity, StorageClass, StorageDriver, Topologies, Volume

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
NO_PROVISIONER = "kubernetes.io/no-provisioner"

_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_DELAYED = "WaitForFirstConsumer"
_ZONE_SEPARATOR = "__"
# Old labels first, as in kube-scheduler 1.36 (volume_zone.go).
_ZONES = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
# A term that no node meets.
_NOWHERE = (NodeSelectorTerm(invalid="cannot be read"),)


class VolumeClaimObject(msgspec.Struct, frozen=True):
    """A PersistentVolumeClaim. `owner` is the uid of its controller, `node` the node selected for provisioning."""

    namespace: str
    name: str
    uid: str = ""
    owner: str = ""
    storage_class: str = ""
    size: int = 0
    modes: tuple[str, ...] = ()
    block: bool = False
    attributes: str = ""
    selector: Selector = ()
    volume: str = ""
    completed: bool = False
    lost: bool = False
    deleting: bool = False
    node: str = ""
    fault: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def bound(self) -> bool:
        """Whether PersistentVolumeClaim and PersistentVolume are bound to each other."""
        return bool(self.volume) and self.completed


class StoredVolume(msgspec.Struct, frozen=True):
    """A PersistentVolume and its claim (`claim` is namespace/name, `claim_uid` can be unknown yet). `attached`
    is its CSI driver and handle, translated if needed; `handle` is the untranslated one."""

    spec: Volume
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    claim: str = ""
    claim_uid: str = ""
    available: bool = False
    deleting: bool = False
    attached: Handle | None = None
    handle: str | None = None

    def is_reserved_for(self, claim: VolumeClaimObject) -> bool:
        """Return whether the PersistentVolume is reserved for this claim and suitable (component-helpers,
        FindMatchingVolume)."""
        volume = self.spec
        return (
            self.claim == claim.key
            and self.claim_uid in ("", claim.uid)
            and not self.deleting
            and volume.storage_class == claim.storage_class
            and volume.size >= claim.size
            and (volume.block, volume.attributes) == (claim.block, claim.attributes)
        )


class StoredClass(msgspec.Struct, frozen=True):
    """A StorageClass. `provisioner` is the stated one, `delayed` means that claims wait for their pods."""

    spec: StorageClass
    provisioner: str
    delayed: bool


class StoredAttachment(msgspec.Struct, frozen=True):
    """A VolumeAttachment of a node."""

    node: str
    driver: str
    volume: str


def read_claim(document: Document) -> VolumeClaimObject:
    metadata, spec, status = _part(document, "metadata"), _part(document, "spec"), _part(document, "status")
    annotations, fault = _part(metadata, "annotations"), ""
    selector: Selector = ()
    try:
        if spec.get("selector") is not None:
            selector = read_selector(spec["selector"])
    except IllegibleSelectorError as error:
        fault = f"spec.selector: {error}"
    size = _amount(_part(_part(spec, "resources"), "requests").get("storage"), MAX_QUANTITY)
    return VolumeClaimObject(
        namespace=_text(metadata, "namespace"),
        name=_text(metadata, "name"),
        uid=_text(metadata, "uid"),
        owner=_controller(metadata),
        storage_class=_class_of(annotations, spec),
        size=size,
        modes=tuple(sorted(_texts(spec, "accessModes"))),
        block=_text(spec, "volumeMode") == "Block",
        attributes=_text(spec, "volumeAttributesClassName"),
        selector=selector,
        volume=_text(spec, "volumeName"),
        completed=BIND_COMPLETED in annotations,
        lost=_text(status, "phase") == "Lost",
        deleting=metadata.get("deletionTimestamp") is not None,
        node=_text(annotations, SELECTED_NODE),
        fault=fault,
    )


def read_volume(document: Document) -> StoredVolume:
    metadata, spec = _part(document, "metadata"), _part(document, "spec")
    labels = {key: text for key, text in _part(metadata, "labels").items() if isinstance(text, str)}
    reference = _part(spec, "claimRef")
    claim = f"{_text(reference, 'namespace')}/{_text(reference, 'name')}" if reference else ""
    return StoredVolume(
        spec=Volume(
            name=_text(metadata, "name"),
            storage_class=_class_of(_part(metadata, "annotations"), spec),
            size=_amount(_part(spec, "capacity").get("storage"), 0),
            modes=tuple(sorted(_texts(spec, "accessModes"))),
            block=_text(spec, "volumeMode") == "Block",
            attributes=_text(spec, "volumeAttributesClassName"),
            labels=tuple(sorted(labels.items())),
            affinity=_affinity(spec.get("nodeAffinity")),
            reserved=bool(claim),
        ),
        zones=_zones(labels),
        claim=claim,
        claim_uid=_text(reference, "uid"),
        available=_text(_part(document, "status"), "phase") == "Available",
        deleting=metadata.get("deletionTimestamp") is not None,
        attached=csi_source(spec, labels),
        handle=_text(_part(spec, "csi"), "volumeHandle") if spec.get("csi") is not None else None,
    )


def read_class(document: Document) -> StoredClass:
    stated = _text(document, "provisioner")
    topologies = _topologies(document.get("allowedTopologies"))
    is_usable = stated not in ("", NO_PROVISIONER) and topologies is not None
    return StoredClass(
        spec=StorageClass(
            name=_text(_part(document, "metadata"), "name"),
            provisioner=stated if is_usable else "",
            topologies=topologies or (),
        ),
        provisioner=stated,
        delayed=_text(document, "volumeBindingMode") == _DELAYED,
    )


def read_capacity(document: Document) -> StorageCapacity | None:
    """Decode a CSIStorageCapacity; None if it offers nothing to any node."""
    metadata, topology = _part(document, "metadata"), document.get("nodeTopology")
    limit = document.get("maximumVolumeSize") or document.get("capacity")
    if topology is None or limit is None:
        return None
    try:
        selector = read_selector(topology)
    except IllegibleSelectorError:
        return None
    return StorageCapacity(
        key=f"{_text(metadata, 'namespace')}/{_text(metadata, 'name')}",
        storage_class=_text(document, "storageClassName"),
        limit=_amount(limit, 0),
        topology=selector,
    )


def read_driver(document: Document) -> StorageDriver:
    spec = _part(document, "spec")
    return StorageDriver(
        name=_text(_part(document, "metadata"), "name"),
        tracks_capacity=spec.get("storageCapacity") is True,
        needs_node_plugin=spec.get("preventPodSchedulingIfMissing") is True,
    )


def read_node_storage(document: Document) -> NodeStorage:
    drivers, limits = [], []
    for entry in _list(_part(document, "spec").get("drivers")):
        name, count = _text(entry, "name"), _part(entry, "allocatable").get("count")
        drivers.append(name)
        if is_whole(count):
            limits.append((name, count))
    name = _text(_part(document, "metadata"), "name")
    return NodeStorage(name, tuple(sorted(drivers)), tuple(sorted(limits)))


def read_attachment(document: Document) -> StoredAttachment:
    spec = _part(document, "spec")
    volume = _text(_part(spec, "source"), "persistentVolumeName")
    return StoredAttachment(_text(spec, "nodeName"), _text(spec, "attacher"), volume)


def _class_of(annotations: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    return _text(annotations, _BETA_CLASS) if _BETA_CLASS in annotations else _text(spec, "storageClassName")


def _affinity(stated: object) -> tuple[NodeSelectorTerm, ...] | None:
    if not isinstance(stated, Mapping) or stated.get("required") is None:
        return None
    try:
        selector = msgspec.convert(stated["required"], NodeSelector)
    except msgspec.ValidationError:
        return _NOWHERE
    return tuple(_nameless(selector_term(term)) for term in selector.node_selector_terms)


def _nameless(term: NodeSelectorTerm) -> NodeSelectorTerm:
    """Return the node selector term as upstream evaluates it, on a node with labels but without a name: `In` never
    matches."""
    if all(field.operator == "NotIn" for field in term.fields) and term.expressions:
        return msgspec.structs.replace(term, fields=())
    return term if not term.fields else NodeSelectorTerm(invalid="a volume cannot ask for a node's name")


def _zones(labels: Mapping[str, str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the zone labels of a PersistentVolume; one with an empty item in its list is ignored
    (volume_zone.go)."""
    zones = []
    for key in _ZONES:
        if key in labels:
            values = [value.strip() for value in labels[key].split(_ZONE_SEPARATOR)]
            if all(values):
                zones.append((key, tuple(sorted(set(values)))))
    return tuple(zones)


def _topologies(stated: object) -> Topologies | None:
    """Return the allowed topologies of a StorageClass; None if no node meets them: an empty or unreadable term
    matches no node (v1helper.MatchTopologySelectorTerms)."""
    terms = []
    for entry in _list(stated):
        term = [
            (_text(expression, "key"), tuple(sorted(_texts(expression, "values"))))
            for expression in _list(entry.get("matchLabelExpressions"))
        ]
        if term and all(values for _, values in term):
            terms.append(tuple(sorted(term)))
    return tuple(terms) if terms or not _list(stated) else None


def _controller(metadata: Mapping[str, Any]) -> str:
    owners = (owner for owner in _list(metadata.get("ownerReferences")) if owner.get("controller") is True)
    return _text(next(owners, {}), "uid")


def _amount(stated: object, unreadable: int) -> int:
    if stated is None:
        return 0
    try:
        return max(0, parse_quantity(stated))
    except QuantityError:
        return unreadable


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, Mapping) else {}


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _texts(document: Mapping[str, Any], name: str) -> list[str]:
    value = document.get(name)
    return [text for text in value if isinstance(text, str)] if isinstance(value, Sequence) else []


def _list(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
