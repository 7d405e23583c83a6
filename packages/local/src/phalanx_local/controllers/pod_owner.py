"""Base of controllers that own pods: the owned pods, new pods from a template, and readiness counts."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar

from phalanx_local.controllers.base import Controller
from phalanx_local.errors import StatusError
from phalanx_local.objects import Json, clone, dig, mapping, metadata, sequence, text
from phalanx_local.registry.api import DeleteOptions
from phalanx_local.registry.resources import ResourceType
from phalanx_local.storage.records import Change, Key, Record
from phalanx_local.storage.store import Collection
from phalanx_local.strategies.pods import TERMINAL

PODS = "/pods"


class PodOwner(Controller):
    """Controller of the objects of `storage`; keys are (namespace, name). Changes of owned objects queue their
    owner.
    """

    storage: ClassVar[str]
    owned: ClassVar[str] = PODS

    def observe(self, collection: Collection, change: Change) -> None:
        if collection.storage == self.storage:
            if change.new is not None:
                self.add(change.key)
        elif collection.storage == self.owned:
            for record in (change.old, change.new):
                for uid in record.owners if record is not None else ():
                    owner = self.api.store.by_uid.get(uid)
                    if owner is not None and owner[0] == self.storage:
                        self.add(owner[1])

    def resync(self) -> None:
        collection = self.api.store.collections.get(self.storage)
        for key in list(collection.records) if collection is not None else ():
            self.add(key)

    def reconcile(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        record = self.current(self.storage, key)
        if record is not None and not record.terminating:
            self.sync(self.types()[self.storage], record)

    @abstractmethod
    def sync(self, type_: ResourceType, record: Record) -> None:
        """Reconcile the owned objects and the status of one owner (a ReplicaSet, a Job, ...)."""

    def dependents(self, owner: Record) -> list[Record]:
        """Return the owned objects that this owner controls, oldest first."""
        records: list[Record] = []
        for storage, key in self.api.store.by_owner.get(owner.uid, ()):
            record = self.current(storage, key) if storage == self.owned else None
            if record is not None and _controller_uid(record) == owner.uid:
                records.append(record)
        return sorted(records, key=lambda record: record.key)

    def controlled(self, type_: ResourceType, owner: Record, body: Json) -> Json:
        """Return the object to create with the owner as its controller in metadata.ownerReferences."""
        metadata(body)["ownerReferences"] = [
            {
                "apiVersion": type_.preferred.api_version,
                "kind": type_.kind,
                "name": owner.name,
                "uid": owner.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        return body

    def make_pod(self, type_: ResourceType, owner: Record, template: Json) -> Json:
        """Return a pod body from a pod template, named after the owner."""
        template_meta = mapping(template.get("metadata"))
        meta: Json = {"generateName": f"{owner.name}-"}
        for part in ("labels", "annotations", "finalizers"):
            if template_meta.get(part):
                meta[part] = clone({part: template_meta[part]})[part]
        body: Json = {"metadata": meta, "spec": clone(mapping(template.get("spec")))}
        return self.controlled(type_, owner, body)

    def create_pod(self, namespace: str, body: Json) -> None:
        """Store a new pod. If a quota or a policy rejects the pod, record an event on the owner and raise the
        rejection."""
        try:
            self.create(PODS, namespace, body)
        except StatusError as refusal:
            self._record_failure(namespace, mapping(sequence(metadata(body).get("ownerReferences"))[0]), refusal)
            raise

    def _record_failure(self, namespace: str, owner: Json, refusal: StatusError) -> None:
        name = f"{owner['name']}.failed-create.{owner['uid']}"
        if self.api.exists("", "events", namespace, name):
            return  # one event is enough until it expires
        now = self.api.now()
        event: Json = {
            "metadata": {"name": name},
            "involvedObject": {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "namespace": namespace,
                "name": owner["name"],
                "uid": owner["uid"],
            },
            "reason": "FailedCreate",
            "message": f"Error creating: {refusal}",
            "type": "Warning",
            "source": {"component": f"{owner['kind'].lower()}-controller"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        with contextlib.suppress(StatusError):
            self.api.create(self.api.type("", "events").preferred, namespace, event, self.api.write())

    def delete(self, storage: str, record: Record) -> None:
        self.api.delete(self.types()[storage], record, DeleteOptions(uid=record.uid), self.api.write())

    def put_status(self, type_: ResourceType, owner: Key, status: Json) -> None:
        """Store a status of the owner if it differs from the stored status."""
        record = self.current(self.storage, owner)
        if record is not None:
            new = record.load()
            new["status"] = status
            self.save(type_, record, new)


def _controller_uid(record: Record) -> str:
    for reference in map(mapping, sequence(metadata(record.load()).get("ownerReferences"))):
        if reference.get("controller") is True:
            return text(reference.get("uid"))
    return ""


def is_active(pod: Record) -> bool:
    """Return whether a pod runs or will run: it has not ended and is not terminating."""
    return not pod.terminating and pod.fields["status.phase"] not in TERMINAL


def is_ready(pod: Record) -> bool:
    return any(
        mapping(item).get("type") == "Ready" and mapping(item).get("status") == "True"
        for item in sequence(dig(pod.load(), "status", "conditions"))
    )


def number(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default
