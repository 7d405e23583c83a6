"""PersistentVolumes and their claims: binding, provisioning, and reclaim of released volumes.

Volumes are provisioned for claims of StorageClasses with the provisioner `phalanx.dev/fake`. The class parameter
`topologyKey` names a node label; such a volume is reachable only from nodes with the same value. Claims of other
provisioners wait for those.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

from phalanx.model.matching import all_hold
from phalanx.model.text.quantity import parse_quantity
from phalanx_local.controllers.base import Controller
from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.registry.api import DeleteOptions
from phalanx_local.registry.selectors import selector_from_object
from phalanx_local.storage.records import Change, Key, Record
from phalanx_local.storage.store import Collection

CLAIMS: Final = "/persistentvolumeclaims"
VOLUMES: Final = "/persistentvolumes"
CLASSES: Final = "storage.k8s.io/storageclasses"
NODES: Final = "/nodes"
FAKE_PROVISIONER: Final = "phalanx.dev/fake"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
_DELAYED: Final = "WaitForFirstConsumer"


class VolumeController(Controller):
    """Controller of PersistentVolumeClaims and PersistentVolumes; keys are (storage, namespace, name). The key of a
    StorageClass means all of its claims."""

    def observe(self, collection: Collection, change: Change) -> None:
        storage = collection.storage
        if storage not in (CLAIMS, VOLUMES, CLASSES):
            return
        self.add((storage, *change.key))
        for record in (change.old, change.new):
            if record is None:
                continue
            spec = mapping(record.load().get("spec"))
            if storage == VOLUMES and (reference := mapping(spec.get("claimRef"))):
                self.add((CLAIMS, text(reference.get("namespace")), text(reference.get("name"))))
            elif storage == VOLUMES:
                self.add((CLASSES, "", text(spec.get("storageClassName"))))
            elif storage == CLAIMS and spec.get("volumeName"):
                self.add((VOLUMES, "", text(spec.get("volumeName"))))
        if storage == CLAIMS and change.new is None:
            self._release_reserved(change.key)

    def resync(self) -> None:
        for storage in (CLAIMS, VOLUMES):
            for record in self._all(storage):
                self.add((storage, *record.key))

    def reconcile(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        storage, namespace, name = key
        if storage == CLASSES:
            for claim in self._all(CLAIMS):
                if text(mapping(claim.load().get("spec")).get("storageClassName")) == name:
                    self.add((CLAIMS, *claim.key))
            return
        record = self.current(storage, (namespace, name))
        if record is None:
            return
        if storage == CLAIMS:
            self._claim(record)
        else:
            self._volume(record)

    # claims

    def _claim(self, record: Record) -> None:
        claim = record.load()
        spec = mapping(claim.get("spec"))
        volume_name = text(spec.get("volumeName"))
        bound = BIND_COMPLETED in mapping(metadata(claim).get("annotations"))
        if volume_name:
            volume = self.current(VOLUMES, ("", volume_name))
            if volume is None or not _is_available_to(volume.load(), record):
                self._set_status(CLAIMS, record, {"phase": "Lost" if bound else "Pending"})
            else:
                self._bind(record, volume, by_controller=False)
            return
        if record.terminating:
            return
        volume = self._match(record, claim)
        if volume is not None:
            self._bind(record, volume, by_controller=True)
        else:
            self._provision(record, claim)

    def _match(self, record: Record, claim: Json) -> Record | None:
        """Return the volume reserved for a PersistentVolumeClaim, else the smallest suitable volume; None with
        WaitForFirstConsumer."""
        waits = self._is_delayed(claim)
        fitting = []
        for volume in self._all(VOLUMES):
            obj = volume.load()
            if volume.terminating or not _is_suitable(obj, claim):
                continue
            reference = mapping(mapping(obj.get("spec")).get("claimRef"))
            if reference:
                if _is_available_to(obj, record):
                    return volume
            elif not waits and text(mapping(obj.get("status")).get("phase")) == "Available":
                fitting.append((_size(mapping(mapping(obj.get("spec")).get("capacity"))), volume.name, volume))
        return min(fitting, default=(0, "", None))[2]

    def _provision(self, record: Record, claim: Json) -> None:
        spec, annotations = mapping(claim.get("spec")), mapping(metadata(claim).get("annotations"))
        name = text(spec.get("storageClassName"))
        storage_class = self.current(CLASSES, ("", name))
        node = text(annotations.get(SELECTED_NODE))
        if storage_class is None or (self._is_delayed(claim) and not node):
            return
        provisioner = text(storage_class.load().get("provisioner"))
        if annotations.get(PROVISIONER) != provisioner:
            metadata(claim).setdefault("annotations", {})[PROVISIONER] = provisioner
            record = self.save(self.types()[CLAIMS], record, claim)
        if provisioner != FAKE_PROVISIONER:
            return
        affinity = self._affinity(storage_class.load(), node)
        if affinity == {}:
            # Without the annotation the scheduler chooses another node.
            del metadata(claim)["annotations"][SELECTED_NODE]
            self.save(self.types()[CLAIMS], record, claim)
            return
        volume = f"pvc-{record.uid}"
        body: Json = {
            "metadata": {"name": volume, "annotations": {PROVISIONED_BY: provisioner}},
            "spec": {
                "accessModes": sequence(spec.get("accessModes")),
                "capacity": dict(mapping(mapping(spec.get("resources")).get("requests"))),
                "claimRef": _reference(record),
                "csi": {"driver": provisioner, "volumeHandle": volume},
                "persistentVolumeReclaimPolicy": storage_class.load().get("reclaimPolicy", "Delete"),
                "storageClassName": name,
                "volumeMode": spec.get("volumeMode", "Filesystem"),
            },
        }
        if affinity is not None:
            body["spec"]["nodeAffinity"] = affinity
        if spec.get("volumeAttributesClassName"):
            body["spec"]["volumeAttributesClassName"] = spec["volumeAttributesClassName"]
        self.create(VOLUMES, "", body)

    def _affinity(self, storage_class: Json, node: str) -> Json | None:
        """Return the node affinity of a volume; None if all nodes reach the volume, {} if the node lacks the
        topology label."""
        key = text(mapping(storage_class.get("parameters")).get("topologyKey"))
        if not key or not node:
            return None
        record = self.current(NODES, ("", node))
        value = record.labels.get(key, "") if record is not None else ""
        if not value:
            return {}
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
        return {"required": {"nodeSelectorTerms": [term]}}

    def _is_delayed(self, claim: Json) -> bool:
        name = text(mapping(claim.get("spec")).get("storageClassName"))
        record = self.current(CLASSES, ("", name))
        return record is not None and record.load().get("volumeBindingMode") == _DELAYED

    def _bind(self, record: Record, volume: Record, *, by_controller: bool) -> None:
        """Bind a volume and its PersistentVolumeClaim to each other, the volume first; a side that is bound already
        is not written."""
        obj, claim = volume.load(), record.load()
        spec = mapping(obj["spec"])
        if text(mapping(spec.get("claimRef")).get("uid")) != record.uid:
            if not mapping(spec.get("claimRef")):
                metadata(obj).setdefault("annotations", {})[BOUND_BY_CONTROLLER] = "yes"
            spec["claimRef"] = _reference(record)
            volume = self.save(self.types()[VOLUMES], volume, obj)
        self._set_status(VOLUMES, volume, {"phase": "Bound"})
        annotations = metadata(claim).setdefault("annotations", {})
        if by_controller:
            annotations[BOUND_BY_CONTROLLER] = "yes"
        annotations[BIND_COMPLETED] = "yes"
        claim["spec"]["volumeName"] = volume.name
        record = self.save(self.types()[CLAIMS], record, claim)
        status = {"phase": "Bound", "accessModes": spec.get("accessModes"), "capacity": spec.get("capacity")}
        self._set_status(CLAIMS, record, status)

    # volumes

    def _volume(self, record: Record) -> None:
        volume = record.load()
        reference = mapping(mapping(volume.get("spec")).get("claimRef"))
        if not reference or not reference.get("uid"):
            self._set_status(VOLUMES, record, {"phase": "Available"})
            return
        claim = self.current(CLAIMS, (text(reference.get("namespace")), text(reference.get("name"))))
        if claim is not None and claim.uid == reference["uid"]:
            return
        self._set_status(VOLUMES, record, {"phase": "Released"})
        annotations = mapping(metadata(volume).get("annotations"))
        policy = mapping(volume["spec"]).get("persistentVolumeReclaimPolicy")
        if policy == "Delete" and annotations.get(PROVISIONED_BY) == FAKE_PROVISIONER:
            current = self.current(VOLUMES, record.key)
            if current is not None and not current.terminating:
                self.api.delete(self.types()[VOLUMES], current, DeleteOptions(uid=record.uid), self.api.write())

    def _release_reserved(self, key: Key) -> None:
        for volume in self._all(VOLUMES):
            reference = mapping(mapping(volume.load().get("spec")).get("claimRef"))
            if (reference.get("namespace"), reference.get("name")) == key:
                self.add((VOLUMES, *volume.key))

    def _set_status(self, storage: str, record: Record, status: Json) -> None:
        current = self.current(storage, record.key)
        if current is not None and current.uid == record.uid:
            new = current.load()
            new["status"] = {**mapping(new.get("status")), **status}
            self.save(self.types()[storage], current, new)

    def _all(self, storage: str) -> Iterator[Record]:
        collection = self.api.store.collections.get(storage)
        return iter(sorted(collection.records.values(), key=lambda record: record.key) if collection else ())


def _reference(claim: Record) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": str(claim.revision),
    }


def _is_available_to(volume: Json, claim: Record) -> bool:
    """Return whether a PersistentVolume is unbound or reserved for the claim."""
    reference = mapping(mapping(volume.get("spec")).get("claimRef"))
    if not reference:
        return True
    named = (text(reference.get("namespace")), text(reference.get("name"))) == claim.key
    return named and reference.get("uid") in (None, "", claim.uid)


def _is_suitable(volume: Json, claim: Json) -> bool:
    offered, wanted = mapping(volume.get("spec")), mapping(claim.get("spec"))
    selector = selector_from_object(wanted["selector"]) if wanted.get("selector") is not None else None
    return (
        text(offered.get("storageClassName")) == text(wanted.get("storageClassName"))
        and offered.get("volumeMode", "Filesystem") == wanted.get("volumeMode", "Filesystem")
        and text(offered.get("volumeAttributesClassName")) == text(wanted.get("volumeAttributesClassName"))
        and set(sequence(wanted.get("accessModes"))) <= set(sequence(offered.get("accessModes")))
        and _size(mapping(offered.get("capacity")))
        >= _size(mapping(mapping(wanted.get("resources")).get("requests")))
        and (selector is None or all_hold(selector, mapping(metadata(volume).get("labels"))))
    )


def _size(amounts: Json) -> int:
    return parse_quantity(amounts.get("storage", "0"))
