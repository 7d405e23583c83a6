"""Check whether new pods of a job fit into the ResourceQuotas of their namespace."""

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
    """Part of a ResourceQuota that limits pods. `used` is the usage charged by the API server, `hard` are the
    limits."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    hard: Amounts
    used: Amounts
    selectors: tuple[ScopeSelector, ...] = ()

    def charge(self, spec: Json) -> Amounts:
        """Return the resources that a pod with this spec uses of the quota; empty if the quota does not select
        it."""
        if not all(pod_matches(selector, spec) for selector in self.selectors):
            return {}
        usage = {"count/pods": ONE, **pod_usage(spec)}
        return {name: usage[name] for name in self.hard if name in usage}


class QuotaShortage(msgspec.Struct, frozen=True):
    """Shortage of a ResourceQuota for new pods: they request `wanted` of a resource, the quota has `room` left;
    `hard` is its limit."""

    quota: str
    resource: str
    wanted: Quantity
    room: Quantity
    hard: Quantity
    pods: int

    @property
    def hopeless(self) -> bool:
        """Whether the pods request more than the whole limit of the quota."""
        return self.wanted > self.hard

    def __str__(self) -> str:
        missing = Quantity(self.wanted.nano - max(0, self.room.nano), self.wanted.style)
        request = f"{self.pods} new pods request" if self.pods else "all members request"
        return (
            f"quota {self.quota} lacks {missing} {self.resource}: {request} {self.wanted}, "
            f"{_at_least_zero(self.room)} left (limit {self.hard})"
        )


_DECODER = msgspec.json.Decoder(ResourceQuotaObject)


def read_quota(raw: bytes) -> NamespaceQuota | None:
    """Decode a ResourceQuota; return None unless it limits pods and the API server enforces it already. Raise
    msgspec.DecodeError."""
    quota = _DECODER.decode(raw)
    spec, metadata = quota.spec, quota.metadata
    # The API server enforces the limits of the status, not a newer spec.
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
    """Return the first shortage of the quotas for these pods (spec and number); None if all of them fit."""
    for quota in sorted(quotas, key=lambda candidate: candidate.name):
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
    """Return how many of these pods fit into the quotas, taken in order."""
    known = list(quotas)
    remaining = {
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
            if amount and amount > remaining[key]:
                return number
        for key, amount in charge:
            remaining[key] -= amount
    return len(specs)


def _at_least_zero(amount: Quantity) -> Quantity:
    return amount if amount.nano > 0 else Quantity(0)
