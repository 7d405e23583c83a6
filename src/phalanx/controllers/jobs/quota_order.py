"""Order of jobs that wait for ResourceQuota of their new pods.

A job's pods are created only if the quotas fit as many as it needs to start. The quota is charged at the creation
of a pod, so jobs of one namespace with a quota create their pods one after the other, each against freshly read
quotas. A job that does not fit waits in a line ordered by age; a job that requests more than the limit blocks no
other job.
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

# Maximum number of unfitting jobs that are woken when quota becomes free; later jobs wait for them anyway.
_MAX_WOKEN = 16


class QuotaWait(msgspec.Struct, frozen=True):
    """Job that waits for ResourceQuota: `age` is its sort key, `pods` are pod specs with their numbers.

    Only jobs without their `quorum` block later jobs. `key` identifies the job to wake.
    """

    namespace: str
    name: str
    key: Hashable
    uid: str
    age: tuple[str, str]
    pods: Pods
    shortage: QuotaShortage
    quorum: bool = True


class QuotaOrder:
    """ResourceQuotas of all namespaces, and the jobs that wait for them. `wake` is called with the key of a job."""

    def __init__(self, context: ControllerContext, wake: Callable[[Any], None]) -> None:
        self._context = context
        self._wake = wake
        self.quotas: ObjectStore[NamespaceQuota] = ObjectStore(
            read_quota, index=lambda quota: quota.namespace, changed=self._changed
        )
        self._waits: dict[str, dict[str, QuotaWait]] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    def limited(self, namespace: str) -> bool:
        """Return whether a ResourceQuota of the namespace limits pods."""
        return any(True for _ in self.quotas.of(namespace))

    def turn(self, namespace: str) -> asyncio.Lock:
        """Return the lock to hold from the check of a namespace's ResourceQuotas to the creation of the pods."""
        if namespace not in self._turns:
            self._turns = {name: lock for name, lock in self._turns.items() if lock.locked()}
            self._turns[namespace] = asyncio.Lock()
        return self._turns[namespace]

    async def refresh(self, namespace: str) -> None:
        """Read the ResourceQuotas of a namespace, whose usage includes the latest pods of other clients."""
        listed = await self._context.client.list_all(RESOURCE_QUOTAS.path(namespace))
        for item in listed.get("items") or ():
            raw = msgspec.json.encode({**item, "kind": RESOURCE_QUOTAS.kind})
            self.quotas.put((namespace, item["metadata"]["name"]), raw)

    def ahead(self, namespace: str, uid: str, age: tuple[str, str], pods: Pods) -> QuotaWait | None:
        """Return the first older job that waits for a quota resource that these pods use; None if there is none."""
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
        """Remove a job that has its pods, or wants none any more, from the line for ResourceQuota; wake later
        jobs."""
        waits = self._waits.get(namespace, {})
        if waits.pop(uid, None) is None:
            return
        if not waits:
            del self._waits[namespace]
        else:
            self._wake_fitting(namespace)

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
            self._wake_fitting(key[0])

    def _wake_fitting(self, namespace: str) -> None:
        """Wake the jobs of a namespace whose pods fit into the ResourceQuotas now, and the first waiting job to
        update its message."""
        quotas = list(self.quotas.of(namespace))
        reserved: list[tuple[dict[str, Any], int]] = []
        unfitting = 0
        for number, wait in enumerate(self._line(namespace)):
            if quota_shortage(quotas, [*reserved, *wait.pods]) is None:
                reserved += wait.pods
            else:
                unfitting += 1
                if number:
                    if unfitting > _MAX_WOKEN:
                        return
                    continue
            self._wake(wait.key)
