"""Status of ResourceQuotas: limits and usage."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from phalanx.model.pod_quota import amounts
from phalanx_local.admission.quota import QUOTAS, QuotaLedger
from phalanx_local.admission.quota_usage import PODS, expiry
from phalanx_local.controllers.base import Controller
from phalanx_local.objects import Json, mapping
from phalanx_local.registry.api import Api
from phalanx_local.storage.records import Change, Key
from phalanx_local.storage.store import Collection

_EXPIRED: Final = "expired"


class ResourceQuotaController(Controller):
    """Controller of ResourceQuotas; keys are names of namespaces, and terminating pods whose grace period has
    passed."""

    def __init__(self, api: Api, ledger: QuotaLedger) -> None:
        super().__init__(api)
        self._ledger = ledger

    def observe(self, collection: Collection, change: Change) -> None:
        if not self._ledger.quotas(change.key[0]):
            return
        self.add(change.key[0])
        if collection.storage == PODS and change.new is not None and change.new.terminating:
            self._expect(change.key, change.new.load())

    def _expect(self, key: Key, pod: Json) -> None:
        end = expiry(pod)
        if end is not None:
            self.add_later((_EXPIRED, key), max(0.0, end - self.api.clock.now()) + 1.0)

    def resync(self) -> None:
        collection = self.api.store.collections.get(QUOTAS)
        for namespace in {key[0] for key in collection.records} if collection is not None else ():
            self.add(namespace)
            pods = self.api.store.collections.get(PODS)
            for key in pods.keys(namespace) if pods is not None else ():
                if pods is not None and pods.records[key].terminating:
                    self._expect(key, pods.records[key].load())

    def reconcile(self, key: Hashable) -> None:
        namespace = str(key)
        if isinstance(key, tuple):
            self._ledger.count_again(key[1])
            namespace = key[1][0]
        for name, quota in self._ledger.quotas(namespace).items():
            record = self.current(QUOTAS, (namespace, name))
            if record is None:
                continue
            obj = record.load()
            status = mapping(obj.get("status"))
            if amounts(status.get("hard")) == quota.hard and amounts(status.get("used")) == quota.used:
                continue
            obj["status"] = {
                "hard": {item: str(amount) for item, amount in quota.hard.items()},
                "used": {item: str(amount) for item, amount in quota.used.items()},
            }
            self.save(self.types()[QUOTAS], record, obj)
