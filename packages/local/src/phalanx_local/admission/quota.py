"""ResourceQuota: usage of namespaces, counted at every write, and rejection of writes that exceed it.

Counting and checking are in the same step as the write, so that two requests cannot use the same remaining quota.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from phalanx.model.pod_quota import (
    Amounts,
    ScopeSelector,
    amounts,
    compute,
    limits_pods,
    plus,
    pod_matches,
    selectors_of,
)
from phalanx.model.text.quantity import Quantity
from phalanx_local.admission.quota_usage import MEASURED, PODS, usage_of
from phalanx_local.clock import Clock
from phalanx_local.errors import Qualified, forbidden
from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.storage.records import Change, Key, Record
from phalanx_local.storage.store import Collection, Store

QUOTAS: Final = "/resourcequotas"
_NOTHING: Final = Quantity(0)
# If a quota limits one of these resources, every container must specify it.
_TO_BE_STATED: Final = frozenset(
    ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
)


@dataclass(slots=True)
class TrackedQuota:
    """One ResourceQuota: its limits, the pods that its scopes select, and its current usage."""

    name: str
    hard: Amounts
    selectors: tuple[ScopeSelector, ...]
    used: Amounts = field(default_factory=dict)

    def applies(self, storage: str, obj: Json | None, usage: Amounts) -> bool:
        """Return whether the quota limits a resource that an object uses. A quota with scopes limits only pods."""
        if storage == PODS:
            limited = any(limits_pods(name) for name in self.hard)
        else:
            limited = not usage.keys().isdisjoint(self.hard)
        if not limited:
            return False
        if not self.selectors:
            return True
        return (
            storage == PODS
            and obj is not None
            and all(pod_matches(item, mapping(obj.get("spec"))) for item in self.selectors)
        )

    def masked(self, usage: Amounts) -> Amounts:
        return {name: amount for name, amount in usage.items() if name in self.hard}


@dataclass(slots=True)
class _Namespace:
    """ResourceQuotas of a namespace, and the usage of each object in each quota."""

    quotas: dict[str, TrackedQuota]
    charges: dict[tuple[str, Key], dict[str, Amounts]] = field(default_factory=dict)


class QuotaLedger:
    """Usage of all ResourceQuotas, updated from the store; a write to a namespace without quotas costs one
    lookup."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._namespaces: dict[str, _Namespace] = {}
        store.listen(self._changed)

    def load(self) -> None:
        """Load the ResourceQuotas that the server restored from its data file."""
        collection = self._store.collections.get(QUOTAS)
        for namespace in {key[0] for key in collection.records} if collection is not None else ():
            self._recount(namespace)

    def quotas(self, namespace: str) -> dict[str, TrackedQuota]:
        """Return the ResourceQuotas of a namespace by name."""
        entry = self._namespaces.get(namespace)
        return entry.quotas if entry is not None else {}

    def admit(
        self, resource: Qualified, storage: str, obj: Json, old: Json | None = None, subresource: str = ""
    ) -> None:
        """Raise 403 if a created or updated object would exceed a ResourceQuota, or does not specify a limited
        resource."""
        namespace = self._namespaces.get(text(metadata(obj).get("namespace")))
        if namespace is None:
            return
        if old is not None and (storage not in MEASURED or subresource != ("resize" if storage == PODS else "")):
            return
        now = self._clock.now()
        usage = usage_of(storage, obj, now)
        before = usage_of(storage, old, now) if old is not None else {}
        name = text(metadata(obj).get("name"))
        for _, quota in sorted(namespace.quotas.items()):
            if not quota.applies(storage, obj, usage):
                continue
            if storage == PODS:
                missing = _missing(quota, obj)
                if missing:
                    raise forbidden(resource, name, f"failed quota: {quota.name}: must specify {missing}")
            counted = before if old is not None and quota.applies(storage, old, before) else {}
            asked = {
                key: Quantity(amount.nano - counted.get(key, _NOTHING).nano, amount.style)
                for key, amount in quota.masked(usage).items()
            }
            self._require(resource, name, quota, {key: amount for key, amount in asked.items() if amount.nano > 0})

    def _require(self, resource: Qualified, name: str, quota: TrackedQuota, asked: Amounts) -> None:
        over = [key for key, amount in asked.items() if plus(quota.used[key], amount) > quota.hard[key]]
        if over:
            shown = ", ".join(
                f"{word}: {_listed(values, over)}"
                for word, values in (("requested", asked), ("used", quota.used), ("limited", quota.hard))
            )
            raise forbidden(resource, name, f"exceeded quota: {quota.name}, {shown}")

    # --- updates from the store

    def count_again(self, key: Key) -> None:
        """Count the usage of a pod again, because a terminating pod leaves the quota when its grace period ends."""
        collection = self._store.collections.get(PODS)
        record = collection.records.get(key) if collection is not None else None
        namespace = self._namespaces.get(key[0])
        if namespace is not None and record is not None:
            self._charge(namespace, PODS, record)

    def _changed(self, collection: Collection, change: Change) -> None:
        name = change.key[0]
        if collection.storage == QUOTAS and self._differs(name, change):
            self._recount(name)
            return
        namespace = self._namespaces.get(name)
        if namespace is None:
            return
        if change.new is None:
            self._refund(namespace, (collection.storage, change.key))
        elif change.old is None or collection.storage in MEASURED:
            self._charge(namespace, collection.storage, change.new)

    def _differs(self, namespace: str, change: Change) -> bool:
        """Return whether a change of a ResourceQuota affects more than its status."""
        known = self.quotas(namespace).get(change.key[1])
        if change.new is None or known is None:
            return True
        quota = _read(change.new)
        return (quota.hard, quota.selectors) != (known.hard, known.selectors)

    def _recount(self, name: str) -> None:
        stored = self._store.collections.get(QUOTAS)
        records = [stored.records[key] for key in stored.keys(name)] if stored is not None else []
        if not records:
            self._namespaces.pop(name, None)
            return
        namespace = self._namespaces[name] = _Namespace({record.name: _read(record) for record in records})
        for storage, collection in self._store.collections.items():
            for key in collection.keys(name):
                self._charge(namespace, storage, collection.records[key])

    def _charge(self, namespace: _Namespace, storage: str, record: Record) -> None:
        entry = (storage, record.key)
        self._refund(namespace, entry)
        obj = record.load() if storage in MEASURED else None
        usage = usage_of(storage, obj, self._clock.now())
        charged: dict[str, Amounts] = {}
        for quota in namespace.quotas.values():
            if quota.applies(storage, obj, usage):
                charged[quota.name] = quota.masked(usage)
                for key, amount in charged[quota.name].items():
                    quota.used[key] = plus(quota.used[key], amount)
        if charged:
            namespace.charges[entry] = charged

    def _refund(self, namespace: _Namespace, entry: tuple[str, Key]) -> None:
        for name, charged in namespace.charges.pop(entry, {}).items():
            used = namespace.quotas[name].used
            for key, amount in charged.items():
                used[key] = Quantity(used[key].nano - amount.nano, used[key].style)


def _read(record: Record) -> TrackedQuota:
    spec = mapping(record.load().get("spec"))
    hard = amounts(spec.get("hard"))
    return TrackedQuota(record.name, hard, selectors_of(spec), dict.fromkeys(hard, _NOTHING))


def _missing(quota: TrackedQuota, pod: Json) -> str:
    """Return the resources that a quota limits and the pod's containers do not specify: `limits.cpu for: a,b;
    ...`."""
    required = _TO_BE_STATED & quota.hard.keys()
    if not required:
        return ""
    spec = mapping(pod.get("spec"))
    lacking: dict[str, list[str]] = {}
    for group in ("containers", "initContainers"):
        for item in sequence(spec.get(group)):
            resources = mapping(mapping(item).get("resources"))
            stated = compute(amounts(resources.get("requests")), amounts(resources.get("limits")))
            for key in required - stated.keys():
                lacking.setdefault(key, []).append(text(mapping(item).get("name")))
    return "; ".join(f"{key} for: {','.join(sorted(names))}" for key, names in sorted(lacking.items()))


def _listed(values: Amounts, names: list[str]) -> str:
    return ",".join(f"{name}={values[name]!s}" for name in sorted(names))
