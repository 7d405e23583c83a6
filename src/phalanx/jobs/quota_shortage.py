"""Whether pods that are to come fit into the ResourceQuotas of their namespace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from phalanx.dialects.core import ResourceQuotaObject
from phalanx.model.pod_quota import (
    NONE,
    ONE,
    Amounts,
    ScopeSelector,
    amounts,
    limits_pods,
    plus,
    pod_matches,
    pod_usage,
    selectors_of,
)
from phalanx.model.text.quantity import Quantity

Json = dict[str, Any]


class NamespaceQuota(msgspec.Struct, frozen=True):
    """A ResourceQuota as far as it is about pods. `used` is what the API server has charged, `hard` the limits."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    hard: Amounts
    used: Amounts
    selectors: tuple[ScopeSelector, ...] = ()

    def charge(self, spec: Json) -> Amounts:
        """What a pod with this spec is charged here; nothing where the quota is not about it."""
        if not all(pod_matches(selector, spec) for selector in self.selectors):
            return {}
        usage = {"count/pods": ONE, **pod_usage(spec)}
        return {name: usage[name] for name in self.hard if name in usage}


class QuotaShortage(msgspec.Struct, frozen=True):
    """Pods ask for `wanted` of a resource, and the quota has `room` of it left; `hard` is its limit."""

    quota: str
    resource: str
    wanted: Quantity
    room: Quantity
    hard: Quantity
    pods: int

    @property
    def hopeless(self) -> bool:
        """Whether the quota would not do though nothing else used it."""
        return self.wanted > self.hard

    def __str__(self) -> str:
        missing = Quantity(self.wanted.nano - max(0, self.room.nano), self.wanted.style)
        who = f"{self.pods} pods to come ask" if self.pods else "all members ask"
        return (
            f"quota {self.quota} lacks {missing} {self.resource}: {who} for {self.wanted}, "
            f"it has {_least(self.room)} left (limited: {self.hard})"
        )


_DECODER = msgspec.json.Decoder(ResourceQuotaObject)


def read_quota(raw: bytes) -> NamespaceQuota | None:
    """The quota, if it limits pods and the API server enforces it already. Raises msgspec.DecodeError."""
    quota = _DECODER.decode(raw)
    spec, metadata = quota.spec, quota.metadata
    # The API server enforces what the status says, not what the spec has been since.
    hard = {name: amount for name, amount in amounts(quota.status.hard).items() if limits_pods(name)}
    if not hard:
        return None
    used = amounts(quota.status.used)
    return NamespaceQuota(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        metadata.resource_version,
        hard,
        {name: used.get(name, NONE) for name in hard},
        selectors_of({"scopes": spec.scopes, "scopeSelector": spec.scope_selector}),
    )


def quota_shortage(quotas: Iterable[NamespaceQuota], pods: Sequence[tuple[Json, int]]) -> QuotaShortage | None:
    """What is missing so that all pods can be made (their spec and how many of it), None if nothing is."""
    for quota in sorted(quotas, key=lambda each: each.name):
        total: Amounts = {}
        counted: dict[str, int] = {}
        for spec, count in pods:
            for name, amount in quota.charge(spec).items():
                more = Quantity(amount.nano * count, amount.style)
                total[name] = plus(total.get(name, NONE), more)
                counted[name] = counted.get(name, 0) + count
        for name, wanted in sorted(total.items()):
            hard, used = quota.hard[name], quota.used[name]
            room = Quantity(hard.nano - used.nano, hard.style)
            if wanted.nano and wanted > room:
                return QuotaShortage(quota.name, name, wanted, room, hard, counted[name])
    return None


def fitting_pods(quotas: Iterable[NamespaceQuota], specs: Sequence[Json]) -> int:
    """How many of these pods, the first ones first, can be made."""
    known = list(quotas)
    left = {
        (quota.name, name): quota.hard[name].nano - quota.used[name].nano for quota in known for name in quota.hard
    }
    charges: dict[int, list[tuple[tuple[str, str], int]]] = {}
    for number, spec in enumerate(specs):
        charge = charges.get(id(spec))
        if charge is None:
            charge = charges[id(spec)] = [
                ((quota.name, name), amount.nano) for quota in known for name, amount in quota.charge(spec).items()
            ]
        for key, amount in charge:
            if amount and amount > left[key]:
                return number
        for key, amount in charge:
            left[key] -= amount
    return len(specs)


def _least(amount: Quantity) -> Quantity:
    return amount if amount.nano > 0 else Quantity(0)
