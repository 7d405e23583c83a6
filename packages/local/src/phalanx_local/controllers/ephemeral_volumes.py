"""PersistentVolumeClaims for the generic ephemeral volumes of pods: one claim per volume and pod."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from phalanx_local.controllers.base import Controller
from phalanx_local.controllers.volumes import CLAIMS
from phalanx_local.objects import Json, clone, mapping, sequence
from phalanx_local.registry.api import Api
from phalanx_local.storage.records import Change
from phalanx_local.storage.store import Collection
from phalanx_local.strategies.pods import TERMINAL

PODS: Final = "/pods"


class EphemeralVolumes(Controller):
    """Controller of ephemeral volumes; keys are (namespace, name) of pods.

    A pod waits for the deletion of a claim of another owner that has the name of its own claim.
    """

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        # Pods that wait for the deletion of a claim, by the key of the claim.
        self._waiting: dict[tuple[str, str], set[tuple[str, str]]] = {}

    def observe(self, collection: Collection, change: Change) -> None:
        if collection.storage == PODS and change.old is None:
            self.add(change.key)
        elif collection.storage == CLAIMS and change.new is None and change.old is not None:
            for pod in self._waiting.pop(change.key, ()):
                self.add(pod)
            # A pod whose claim was deleted too early gets a new claim.
            for uid in change.old.owners:
                owner = self.api.store.by_uid.get(uid)
                if owner is not None and owner[0] == PODS:
                    self.add(owner[1])

    def resync(self) -> None:
        pods = self.api.store.collections.get(PODS)
        for key in list(pods.records) if pods is not None else ():
            self.add(key)

    def reconcile(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        record = self.current(PODS, key)
        if record is None or record.terminating or record.fields["status.phase"] in TERMINAL:
            return
        pod = record.load()
        for volume in map(mapping, sequence(mapping(pod.get("spec")).get("volumes"))):
            template = mapping(mapping(volume.get("ephemeral")).get("volumeClaimTemplate"))
            name = f"{record.name}-{volume.get('name')}"
            if not template:
                continue
            existing = self.current(CLAIMS, (record.namespace, name))
            if existing is not None:
                if record.uid not in existing.owners:
                    self._waiting.setdefault(existing.key, set()).add(record.key)
                continue
            given = mapping(template.get("metadata"))
            meta: Json = {part: clone(given)[part] for part in ("labels", "annotations") if given.get(part)}
            owner = {"apiVersion": "v1", "kind": "Pod", "name": record.name, "uid": record.uid}
            meta |= {"name": name, "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}
            body = {"metadata": meta, "spec": clone(mapping(template.get("spec")))}
            self.create(CLAIMS, record.namespace, body)
