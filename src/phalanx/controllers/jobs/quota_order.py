"""ResourceQuota for pods that are to come: who may create now, and who waits for whom.

A job's pods are created only if its quotas have room for as many as it needs to start. What is charged for pods
shows in the quota with their creation, so those of one namespace that have a quota are created one job after the
other, each against quotas that were read in that moment. Whoever finds no room waits in line by age; who could
never have room (it asks for more than the limit) holds nobody up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import msgspec

from phalanx.controllers.controller import ControllerContext
from phalanx.controllers.store import ObjectStore
from phalanx.jobs.quota_shortage import NamespaceQuota, QuotaShortage, quota_shortage, read_quota
from phalanx.kube.changes import Key
from phalanx.kube.core_resources import RESOURCE_QUOTAS

Pods = Sequence[tuple[dict[str, Any], int]]

# So many that find no room are asked when quota becomes free; those behind them wait for them anyway.
_ASKED = 16


class QuotaWait(msgspec.Struct, frozen=True):
    """Somebody who waits: `age` orders, `pods` are specs with their numbers. Only those whose `quorum` is missing
    hold up others. `key` is whom to wake."""

    namespace: str
    name: str
    key: Hashable
    uid: str
    age: tuple[str, str]
    pods: Pods
    shortage: QuotaShortage
    quorum: bool = True


class QuotaOrder:
    """The quotas of all namespaces, and the lines before them. `wake` is told who should try again."""

    def __init__(self, context: ControllerContext, wake: Callable[[Any], None]) -> None:
        self._context = context
        self._wake = wake
        self.quotas: ObjectStore[NamespaceQuota] = ObjectStore(
            read_quota, index=lambda quota: quota.namespace, changed=self._changed
        )
        self._waits: dict[str, dict[str, QuotaWait]] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    def limited(self, namespace: str) -> bool:
        """Whether any quota is about pods there."""
        return any(True for _ in self.quotas.of(namespace))

    def turn(self, namespace: str) -> asyncio.Lock:
        """To be held from the look at the quotas until the pods are there."""
        if namespace not in self._turns:
            self._turns = {name: lock for name, lock in self._turns.items() if lock.locked()}
            self._turns[namespace] = asyncio.Lock()
        return self._turns[namespace]

    async def refresh(self, namespace: str) -> None:
        """Reads the quotas of a namespace: what others have created in this moment counts, too."""
        found = await self._context.client.list_all(RESOURCE_QUOTAS.path(namespace))
        for item in found.get("items") or ():
            raw = msgspec.json.encode({**item, "kind": RESOURCE_QUOTAS.kind})
            self.quotas.put((namespace, item["metadata"]["name"]), raw)

    def ahead(self, namespace: str, uid: str, age: tuple[str, str], pods: Pods) -> QuotaWait | None:
        """The first of those who are older and wait for something that these pods would take from them."""
        for wait in self._line(namespace):
            if wait.age >= age:
                return None
            if wait.uid == uid or not wait.quorum or wait.shortage.hopeless:
                continue
            quota = self.quotas.get((namespace, wait.shortage.quota))
            if quota is not None and any(wait.shortage.resource in quota.charge(spec) for spec, _ in pods):
                return wait
        return None

    def wait(self, wait: QuotaWait) -> None:
        self._waits.setdefault(wait.namespace, {})[wait.uid] = wait

    def leave(self, namespace: str, uid: str) -> None:
        """Who has its pods, or wants none any more, waits no longer; those behind may try."""
        waits = self._waits.get(namespace, {})
        if waits.pop(uid, None) is None:
            return
        if not waits:
            del self._waits[namespace]
        else:
            self._ask(namespace)

    def _line(self, namespace: str) -> Iterable[QuotaWait]:
        return sorted(self._waits.get(namespace, {}).values(), key=lambda wait: wait.age)

    def _changed(self, key: Key, old: NamespaceQuota | None, new: NamespaceQuota | None) -> None:
        if old is None:
            return
        if new is None or any(
            new.hard[name].nano - new.used[name].nano > old.hard[name].nano - old.used[name].nano
            if name in new.hard
            else True
            for name in old.hard
        ):
            self._ask(key[0])

    def _ask(self, namespace: str) -> None:
        """Wakes those who have room now, and the first in line, who has news to tell at least."""
        quotas = list(self.quotas.of(namespace))
        taken: list[tuple[dict[str, Any], int]] = []
        without = 0
        for number, wait in enumerate(self._line(namespace)):
            if quota_shortage(quotas, [*taken, *wait.pods]) is None:
                taken += wait.pods
            else:
                without += 1
                if number:
                    if without > _ASKED:
                        return
                    continue
            self._wake(wait.key)
