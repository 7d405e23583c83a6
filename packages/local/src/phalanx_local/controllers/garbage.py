"""Garbage collector: deletes objects whose owners are deleted.

https://kubernetes.io/docs/concepts/architecture/garbage-collection/
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

from phalanx_local.controllers.base import Controller
from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.registry.api import FOREGROUND, ORPHAN, DeleteOptions
from phalanx_local.registry.resources import ResourceType
from phalanx_local.storage.records import Change, Key, Record
from phalanx_local.storage.store import Collection

_SOLID: Final = "solid"
_WAITING: Final = "waiting"
_ABSENT: Final = "absent"
# An object whose body does not contain this text has no finalizers and is not decoded.
_HELD: Final = b'"finalizers"'


class _Object(NamedTuple):
    """Key of an object in the store: a dependent, or an owner that waits for the deletion of its dependents."""

    storage: str
    key: Key


class _Gone(NamedTuple):
    """Key of a deleted owner whose dependents must be checked."""

    uid: str


class GarbageCollector(Controller):
    """Controller of background, foreground and orphan deletion over metadata.ownerReferences."""

    def observe(self, collection: Collection, change: Change) -> None:
        old, new = change.old, change.new
        if new is None:
            assert old is not None
            if old.uid in self.api.store.by_owner:
                self.add(_Gone(old.uid))
            self._wake_owners(old)
            return
        if new.owners and (old is None or old.owners != new.owners):
            self.add(_Object(collection.storage, new.key))
        if new.terminating:
            self.add(_Object(collection.storage, new.key))
        if old is not None and old.owners != new.owners:
            self._wake_owners(old)

    def _wake_owners(self, record: Record) -> None:
        for uid in record.owners:
            owner = self.api.store.by_uid.get(uid)
            if owner is not None:
                self.add(_Object(*owner))

    def resync(self) -> None:
        for storage, collection in self.api.store.collections.items():
            for record in collection.records.values():
                if record.owners or record.terminating:
                    self.add(_Object(storage, record.key))

    def reconcile(self, key: Hashable) -> None:
        if isinstance(key, _Gone):
            for storage, dependent in sorted(self.api.store.by_owner.get(key.uid, ())):
                self.add(_Object(storage, dependent))
        elif isinstance(key, _Object):
            record = self.current(key.storage, key.key)
            type_ = self.types().get(key.storage)
            if record is None or type_ is None:
                return
            if record.terminating:
                if _HELD in record.body:
                    self._as_owner(type_, record)
            elif record.owners:
                self._as_dependent(type_, record)

    # --- owners that terminate

    def _as_owner(self, type_: ResourceType, record: Record) -> None:
        obj = record.load()
        finalizers = sequence(metadata(obj).get("finalizers"))
        if ORPHAN in finalizers:
            self._orphan_dependents(record)
            self._remove_finalizer(type_, record, obj, ORPHAN)
        elif FOREGROUND in finalizers:
            dependents = sorted(self.api.store.by_owner.get(record.uid, ()))
            if any(self._blocks(storage, key, record.uid) for storage, key in dependents):
                for storage, key in dependents:
                    self.add(_Object(storage, key))
            else:
                self._remove_finalizer(type_, record, obj, FOREGROUND)

    def _blocks(self, storage: str, key: Key, owner: str) -> bool:
        record = self.current(storage, key)
        if record is None:
            return False
        references = sequence(metadata(record.load()).get("ownerReferences"))
        return any(item.get("uid") == owner and item.get("blockOwnerDeletion") is True for item in references)

    def _orphan_dependents(self, owner: Record) -> None:
        types = self.types()
        for storage, key in sorted(self.api.store.by_owner.get(owner.uid, ())):
            record, type_ = self.current(storage, key), types.get(storage)
            if record is None or type_ is None:
                continue
            obj = record.load()
            _drop_owners(obj, {owner.uid})
            self.save(type_, record, obj)

    def _remove_finalizer(self, type_: ResourceType, record: Record, obj: Json, finalizer: str) -> None:
        meta = metadata(obj)
        meta["finalizers"] = [item for item in sequence(meta.get("finalizers")) if item != finalizer]
        if not meta["finalizers"]:
            del meta["finalizers"]
        self.save(type_, record, obj)

    # --- dependents

    def _as_dependent(self, type_: ResourceType, record: Record) -> None:
        obj = record.load()
        states = [
            (text(item.get("uid")), self._owner_state(record, item))
            for item in map(mapping, sequence(metadata(obj).get("ownerReferences")))
        ]
        solid = [uid for uid, state in states if state == _SOLID]
        removable = {uid for uid, state in states if state != _SOLID}
        if solid:
            if removable:
                _drop_owners(obj, removable)
                self.save(type_, record, obj)
            return
        waiting = any(state == _WAITING for _, state in states)
        finalizers = sequence(metadata(obj).get("finalizers"))
        if ORPHAN in finalizers:
            policy = "Orphan"
        elif FOREGROUND in finalizers or (waiting and record.uid in self.api.store.by_owner):
            policy = "Foreground"
        else:
            policy = "Background"
        options = DeleteOptions(uid=record.uid, propagation=policy)
        self.api.delete(type_, record, options, self.api.write())

    def _owner_state(self, dependent: Record, reference: Json) -> str:
        """Return the state of an object's owner: it exists, waits for the deletion of its dependents, or is absent.

        An owner of a kind that is not served cannot be read, so it counts as existing.
        """
        group = text(reference.get("apiVersion")).rpartition("/")[0]
        type_ = self.api.registry.find_kind(group, text(reference.get("kind")))
        if type_ is None:
            return _SOLID
        namespace = dependent.namespace if type_.namespaced else ""
        owner = self.current(type_.storage, (namespace, text(reference.get("name"))))
        if owner is None or owner.uid != reference.get("uid"):
            return _ABSENT
        if owner.terminating and FOREGROUND in sequence(metadata(owner.load()).get("finalizers")):
            return _WAITING
        return _SOLID


def _drop_owners(obj: Json, uids: set[str]) -> None:
    meta = metadata(obj)
    remaining = [item for item in sequence(meta.get("ownerReferences")) if mapping(item).get("uid") not in uids]
    if remaining:
        meta["ownerReferences"] = remaining
    else:
        meta.pop("ownerReferences", None)
