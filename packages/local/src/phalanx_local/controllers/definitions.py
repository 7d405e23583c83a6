"""Deletion of CustomResourceDefinitions, after their instances."""

from __future__ import annotations

from collections.abc import Hashable

from phalanx_local.controllers.base import Controller
from phalanx_local.objects import dig, metadata, sequence, text
from phalanx_local.registry.api import DeleteOptions
from phalanx_local.registry.definitions import DEFINITIONS
from phalanx_local.storage.records import Change
from phalanx_local.storage.store import Collection
from phalanx_local.strategies.definitions import CLEANUP


class DefinitionController(Controller):
    """Controller of terminating definitions; keys are names of definitions (plural.group)."""

    def observe(self, collection: Collection, change: Change) -> None:
        if collection.storage == DEFINITIONS:
            if change.new is not None and change.new.terminating:
                self.add(change.new.name)
        elif change.new is None:
            group, _, plural = collection.storage.rpartition("/")
            definition = self.current(DEFINITIONS, ("", f"{plural}.{group}"))
            if definition is not None and definition.terminating:
                self.add(definition.name)

    def resync(self) -> None:
        collection = self.api.store.collections.get(DEFINITIONS)
        for record in list(collection.records.values()) if collection is not None else ():
            if record.terminating:
                self.add(record.name)

    def reconcile(self, key: Hashable) -> None:
        record = self.current(DEFINITIONS, ("", str(key)))
        if record is None or not record.terminating:
            return
        obj = record.load()
        meta = metadata(obj)
        if CLEANUP not in sequence(meta.get("finalizers")):
            return
        group, plural = text(dig(obj, "spec", "group")), text(dig(obj, "spec", "names", "plural"))
        type_ = self.api.registry.find(group, plural)
        if type_ is not None:
            collection = self.api.collection(type_)
            for instance in list(collection.records.values()):
                if not instance.terminating:
                    self.api.delete(type_, instance, DeleteOptions(uid=instance.uid), self.api.write())
            if collection.records:
                return  # instances with finalizers remain; the deletion of the last one adds the key again
        meta["finalizers"] = [item for item in sequence(meta.get("finalizers")) if item != CLEANUP]
        self.save(self.types()[DEFINITIONS], record, obj)
