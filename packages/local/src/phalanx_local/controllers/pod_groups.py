"""Protection of native PodGroups (scheduling.k8s.io): a terminating PodGroup remains while a running pod references
it."""

from __future__ import annotations

from collections.abc import Hashable

from phalanx_local.controllers.base import Controller
from phalanx_local.objects import dig, metadata, sequence
from phalanx_local.registry.api import Api
from phalanx_local.storage.records import Change, Key
from phalanx_local.storage.store import Collection
from phalanx_local.strategies.groups import PROTECTION
from phalanx_local.strategies.pods import TERMINAL

GROUPS, PODS = "scheduling.k8s.io/podgroups", "/pods"


class PodGroupController(Controller):
    """Controller of terminating native PodGroups; keys are (namespace, name) of groups."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self._terminating: set[Key] = set()

    def observe(self, collection: Collection, change: Change) -> None:
        if collection.storage == GROUPS:
            if change.new is None:
                self._terminating.discard(change.key)
            elif change.new.terminating:
                self._terminating.add(change.key)
                self.add(change.key)
        elif collection.storage == PODS and self._terminating and _is_over(change):
            for key in self._terminating:
                if key[0] == change.key[0]:
                    self.add(key)

    def resync(self) -> None:
        groups = self.api.store.collections.get(GROUPS)
        for record in list(groups.records.values()) if groups is not None else ():
            if record.terminating:
                self._terminating.add(record.key)
                self.add(record.key)

    def reconcile(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        record, type_ = self.current(GROUPS, key), self.types().get(GROUPS)
        if record is None or type_ is None or not record.terminating or self._is_referenced(*key):
            return
        obj = record.load()
        meta = metadata(obj)
        remaining = [item for item in sequence(meta.get("finalizers")) if item != PROTECTION]
        if remaining:
            meta["finalizers"] = remaining
        else:
            meta.pop("finalizers", None)
        self.save(type_, record, obj)

    def _is_referenced(self, namespace: str, name: str) -> bool:
        pods = self.api.store.collections.get(PODS)
        if pods is None:
            return False
        for key in pods.keys(namespace):
            record = pods.records[key]
            if record.fields["status.phase"] in TERMINAL:
                continue
            if dig(record.load(), "spec", "schedulingGroup", "podGroupName") == name:
                return True
        return False


def _is_over(change: Change) -> bool:
    return change.new is None or change.new.fields["status.phase"] in TERMINAL
