"""Deletion of pods whose node is deleted: no kubelet reports the end of these pods."""

from __future__ import annotations

from collections.abc import Hashable

from phalanx_local.controllers.base import Controller
from phalanx_local.endpoints.subresources import set_condition
from phalanx_local.objects import mapping
from phalanx_local.registry.api import Api, DeleteOptions
from phalanx_local.storage.records import Change
from phalanx_local.storage.store import Collection
from phalanx_local.strategies.pods import TERMINAL

PODS, NODES = "/pods", "/nodes"


class PodGarbageCollector(Controller):
    """Controller of pods on missing nodes; keys are node names. After a delay the pods are set to Failed and
    deleted."""

    def __init__(self, api: Api, delay: float) -> None:
        super().__init__(api)
        self._delay = delay
        self._waiting: set[str] = set()

    def observe(self, collection: Collection, change: Change) -> None:
        if collection.storage == NODES:
            if change.new is None and change.old is not None:
                self._wait(change.old.name)
        elif collection.storage == PODS and change.new is not None:
            node = change.new.fields["spec.nodeName"]
            before = change.old.fields["spec.nodeName"] if change.old is not None else ""
            if node and node != before and self.current(NODES, ("", node)) is None:
                self._wait(node)

    def resync(self) -> None:
        pods = self.api.store.collections.get(PODS)
        for record in list(pods.records.values()) if pods is not None else ():
            node = record.fields["spec.nodeName"]
            if node and self.current(NODES, ("", node)) is None:
                self._wait(node)

    def _wait(self, node: str) -> None:
        if node not in self._waiting:
            self._waiting.add(node)
            self.add_later(node, self._delay)

    def reconcile(self, key: Hashable) -> None:
        node = str(key)
        self._waiting.discard(node)
        if self.current(NODES, ("", node)) is not None:
            return
        type_ = self.types()[PODS]
        pods = self.api.store.collections.get(PODS)
        for record in list(pods.records.values()) if pods is not None else ():
            if record.fields["spec.nodeName"] != node:
                continue
            obj = record.load()
            status = mapping(obj.setdefault("status", {}))
            if status.get("phase") not in TERMINAL:
                status["phase"] = "Failed"
                condition = {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "message": "PodGC: node no longer exists",
                }
                set_condition(status, condition, self.api.now())
                record = self.save(type_, record, obj)
            self.api.delete(type_, record, DeleteOptions(uid=record.uid, grace_period=0), self.api.write())
