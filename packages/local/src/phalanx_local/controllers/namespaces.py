"""Namespace deletion: first the objects in the namespace, then the finalizer, then the namespace.

A namespace remains while the server of an APIService does not answer: it could have objects there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

from phalanx_local.aggregation.services import API_SERVICES, served_groups
from phalanx_local.controllers.base import Controller
from phalanx_local.endpoints.subresources import set_condition
from phalanx_local.objects import mapping, sequence
from phalanx_local.registry.api import NAMESPACES, DeleteOptions
from phalanx_local.registry.resources import ResourceType
from phalanx_local.storage.records import Change
from phalanx_local.storage.store import Collection
from phalanx_local.strategies.namespaces import FINALIZER

# Maximum size of objects that are deleted in one slice, before requests are served again.
_MAX_BYTES: Final = 200_000
_UNREAD: Final = "NamespaceDeletionDiscoveryFailure"


class NamespaceController(Controller):
    """Controller of terminating namespaces; keys are names of namespaces."""

    def observe(self, collection: Collection, change: Change) -> None:
        if collection.storage == API_SERVICES:
            self.resync()
        elif collection.storage == NAMESPACES:
            if change.new is not None and change.new.terminating:
                self.add(change.new.name)
        elif change.new is None:
            assert change.old is not None
            namespace = self.current(NAMESPACES, ("", change.old.namespace))
            if namespace is not None and namespace.terminating:
                self.add(namespace.name)

    def resync(self) -> None:
        collection = self.api.store.collections.get(NAMESPACES)
        for record in list(collection.records.values()) if collection is not None else ():
            if record.terminating:
                self.add(record.name)

    def reconcile(self, key: Hashable) -> None:
        name = str(key)
        record = self.current(NAMESPACES, ("", name))
        if record is None or not record.terminating:
            return
        if not self._delete_some(name):
            self.add_later(name, 0.0)
            return
        remaining = self._remaining(name)
        type_ = self.types()[NAMESPACES]
        obj = record.load()
        unread = [f"{item.group}/{item.version}" for item in served_groups(self.api) if not item.available]
        self._report_unread(obj, unread)
        if remaining:
            self._report(obj, remaining)
        elif unread:
            pass
        else:
            spec = mapping(obj.setdefault("spec", {}))
            spec["finalizers"] = [item for item in sequence(spec.get("finalizers")) if item != FINALIZER]
        self.save(type_, record, obj)

    def _delete_some(self, namespace: str) -> bool:
        """Delete objects of the namespace during one time slice. Return whether none remain."""
        weight = 0
        for type_, collection in self._contents():
            for key in collection.keys(namespace):
                record = collection.records[key]
                if record.terminating:
                    continue
                if weight > _MAX_BYTES:
                    return False
                weight += len(record.body)
                self.api.delete(type_, record, DeleteOptions(uid=record.uid), self.api.write())
        return True

    def _remaining(self, namespace: str) -> dict[str, int]:
        """Return the number of remaining objects of the namespace for each resource (plural name)."""
        counts = {type_.plural: len(collection.keys(namespace)) for type_, collection in self._contents()}
        return {plural: count for plural, count in counts.items() if count}

    def _contents(self) -> Iterator[tuple[ResourceType, Collection]]:
        for storage, type_ in self.types().items():
            collection = self.api.store.collections.get(storage)
            if collection is not None and type_.namespaced:
                yield type_, collection

    def _report_unread(self, obj: dict[str, object], unread: list[str]) -> None:
        """Set the condition about groups whose resources cannot be listed, if there are any or have been."""
        status = mapping(obj.setdefault("status", {}))
        known = {mapping(item).get("type") for item in sequence(status.get("conditions"))}
        if not unread and _UNREAD not in known:
            return
        listed = ", ".join(f"{name}: stale GroupVersion discovery: {name}" for name in unread)
        condition = {
            "type": _UNREAD,
            "status": "True" if unread else "False",
            "reason": "DiscoveryFailed" if unread else "ResourcesDiscovered",
            "message": f"Discovery failed for some groups, {len(unread)} failing: unable to retrieve the complete "
            f"list of server APIs: {listed}"
            if unread
            else "All resources successfully discovered",
        }
        set_condition(status, condition, self.api.now())

    def _report(self, obj: dict[str, object], remaining: dict[str, int]) -> None:
        listed = ", ".join(
            f"{plural} has {count} resource instances" for plural, count in sorted(remaining.items())
        )
        condition = {
            "type": "NamespaceContentRemaining",
            "status": "True",
            "reason": "SomeResourcesRemain",
            "message": f"Some resources are remaining: {listed}",
        }
        status = mapping(obj.setdefault("status", {}))
        set_condition(status, condition, self.api.now())
