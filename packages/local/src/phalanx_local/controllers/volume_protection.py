"""Protection of volumes in use: the deletion of a PersistentVolumeClaim waits for its pods, and that of a
PersistentVolume for its claim."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from phalanx_local.controllers.base import Controller
from phalanx_local.controllers.volumes import CLAIMS, VOLUMES
from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.storage.records import Change, Record
from phalanx_local.storage.store import Collection
from phalanx_local.strategies.plain import CLAIM_PROTECTION, VOLUME_PROTECTION
from phalanx_local.strategies.pods import TERMINAL

PODS: Final = "/pods"


class VolumeProtection(Controller):
    """Controller of terminating PersistentVolumeClaims and PersistentVolumes; keys are (storage, namespace,
    name)."""

    def observe(self, collection: Collection, change: Change) -> None:
        if collection.storage in (CLAIMS, VOLUMES) and change.new is not None and change.new.terminating:
            self.add((collection.storage, *change.key))
        elif collection.storage == CLAIMS and change.new is None and change.old is not None:
            volume = text(mapping(change.old.load().get("spec")).get("volumeName"))
            self.add((VOLUMES, "", volume))
        elif collection.storage == VOLUMES and change.new is not None:
            self.add((VOLUMES, *change.key))
        elif collection.storage == PODS and change.old is not None and _is_over(change.new):
            for claim in claims_of(change.old.load()) if b'"volumes"' in change.old.body else ():
                self.add((CLAIMS, change.old.namespace, claim))

    def resync(self) -> None:
        for storage in (CLAIMS, VOLUMES):
            collection = self.api.store.collections.get(storage)
            for record in collection.records.values() if collection is not None else ():
                if record.terminating:
                    self.add((storage, *record.key))

    def reconcile(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        storage, namespace, name = key
        record = self.current(storage, (namespace, name))
        if record is None or not record.terminating:
            return
        obj = record.load()
        finalizer = CLAIM_PROTECTION if storage == CLAIMS else VOLUME_PROTECTION
        finalizers = sequence(metadata(obj).get("finalizers"))
        if finalizer not in finalizers or (self._is_used(record) if storage == CLAIMS else _is_bound(obj)):
            return
        metadata(obj)["finalizers"] = [entry for entry in finalizers if entry != finalizer]
        self.save(self.types()[storage], record, obj)

    def _is_used(self, claim: Record) -> bool:
        """Return whether a bound pod that has not ended uses the PersistentVolumeClaim."""
        pods = self.api.store.collections.get(PODS)
        return any(
            not _is_over(pod) and claim.name in claims_of(pod.load())
            for pod in (pods.records.values() if pods is not None else ())
            if pod.namespace == claim.namespace and pod.fields["spec.nodeName"]
        )


def claims_of(pod: Json) -> list[str]:
    """Return the names of the PersistentVolumeClaims that a pod uses, including those of ephemeral volumes."""
    names = []
    for volume in map(mapping, sequence(mapping(pod.get("spec")).get("volumes"))):
        if volume.get("persistentVolumeClaim"):
            names.append(text(mapping(volume["persistentVolumeClaim"]).get("claimName")))
        elif volume.get("ephemeral"):
            names.append(f"{metadata(pod).get('name')}-{volume.get('name')}")
    return names


def _is_over(pod: Record | None) -> bool:
    return pod is None or pod.fields["status.phase"] in TERMINAL


def _is_bound(volume: Json) -> bool:
    return text(mapping(volume.get("status")).get("phase")) == "Bound"
