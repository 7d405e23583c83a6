"""Weights of namespaces within a queue, granted quotas, and Kubernetes' own ResourceQuotas."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.dialects.core import Metadata, ResourceQuotaObject
from phalanx.dialects.reader import show
from phalanx.dialects.warnings import ObjectRef, ObjectWarning, ObjectWarnings
from phalanx.model.account import Limits, ResourceQuota, limits_of
from phalanx.model.events import (
    ClusterEvent,
    NamespaceQuotasGranted,
    NamespaceWeighed,
    ResourceQuotaRemoved,
    ResourceQuotaUpdated,
)
from phalanx.model.resources import parse_amount
from phalanx.model.text.quantity import QuantityError, parse_quantity

WEIGHT = "volcano.sh/namespace.weight"
#: Comma-separated quotas that pods of the namespace can name, beside those for the namespace itself.
QUOTAS = "phalanx.dev/quotas"
_MAX_WEIGHT = 2**31 - 1
_ADVICE = f"write a whole number from 1 to {_MAX_WEIGHT}; the value is ignored"


class NamespaceIndex:
    """Weights, granted quotas and ResourceQuotas of namespaces; each change is published once.

    A namespace's own annotation or label has precedence, then the highest weight among its ResourceQuotas
    (Volcano's way to set it), then 1.
    """

    def __init__(self, warnings: ObjectWarnings) -> None:
        self._object_warnings = warnings
        self._own: dict[str, int] = {}
        self._by_quota: dict[str, dict[str, int]] = {}
        self._weights: dict[str, int] = {}
        self._granted: dict[str, tuple[str, ...]] = {}
        self._quotas: dict[tuple[str, str], ResourceQuota] = {}
        # The value that the last warning was about, per object.
        self._faults: dict[ObjectRef, str] = {}

    def namespace(self, metadata: Metadata) -> list[ClusterEvent]:
        about = ObjectRef("v1", "Namespace", "", metadata.name, metadata.uid)
        weight = None
        for place, values in (("annotation", metadata.annotations), ("label", metadata.labels)):
            if WEIGHT in values:
                weight = self._weight(about, f"{place} {WEIGHT}", values[WEIGHT])
                break
        else:
            self._faults.pop(about, None)
        if weight is None:
            self._own.pop(metadata.name, None)
        else:
            self._own[metadata.name] = weight
        stated = metadata.annotations.get(QUOTAS, "").split(",")
        granted = tuple(sorted({name.strip() for name in stated} - {""}))
        return [*self._weigh(metadata.name), *self._grant(metadata.name, granted)]

    def namespace_removed(self, name: str) -> list[ClusterEvent]:
        self._own.pop(name, None)
        return [*self._weigh(name), *self._grant(name, ())]

    def resource_quota(self, quota: ResourceQuotaObject) -> list[ClusterEvent]:
        metadata = quota.metadata
        namespace, name = metadata.namespace, metadata.name
        weights = self._by_quota.setdefault(namespace, {})
        weights.pop(name, None)
        about = ObjectRef("v1", "ResourceQuota", namespace, name, metadata.uid)
        if WEIGHT in quota.spec.hard:
            weight = self._weight(about, f"spec.hard.{WEIGHT}", quota.spec.hard[WEIGHT])
            if weight is not None:
                weights[name] = weight
        else:
            self._faults.pop(about, None)
        spec = ResourceQuota(
            namespace=namespace,
            name=name,
            hard=_amounts(quota.spec.hard),
            used=_amounts(quota.status.used),
            scoped=bool(quota.spec.scopes) or quota.spec.scope_selector is not None,
        )
        events = self._weigh(namespace)
        if self._quotas.get((namespace, name)) != spec:
            self._quotas[namespace, name] = spec
            events.append(ResourceQuotaUpdated(spec))
        return events

    def resource_quota_removed(self, namespace: str, name: str) -> list[ClusterEvent]:
        self._by_quota.get(namespace, {}).pop(name, None)
        events = self._weigh(namespace)
        if self._quotas.pop((namespace, name), None) is not None:
            events.append(ResourceQuotaRemoved(namespace, name))
        return events

    def _weigh(self, namespace: str) -> list[ClusterEvent]:
        by_quota = self._by_quota.get(namespace, {})
        if not by_quota:
            self._by_quota.pop(namespace, None)
        weight = self._own.get(namespace) or max(by_quota.values(), default=1)
        if weight == self._weights.get(namespace, 1):
            return []
        if weight == 1:
            del self._weights[namespace]
        else:
            self._weights[namespace] = weight
        return [NamespaceWeighed(namespace, weight)]

    def _grant(self, namespace: str, quotas: tuple[str, ...]) -> list[ClusterEvent]:
        if quotas == self._granted.get(namespace, ()):
            return []
        self._granted[namespace] = quotas
        if not quotas:
            del self._granted[namespace]
        return [NamespaceQuotasGranted(namespace, quotas)]

    def _weight(self, about: ObjectRef, field: str, value: object) -> int | None:
        try:
            weight = parse_quantity(value)
        except QuantityError:
            weight = 0
        if 1 <= weight <= _MAX_WEIGHT:
            self._faults.pop(about, None)
            return weight
        text = f"{about.kind} {about.name}: {field} is {show(value)}; {_ADVICE}"
        if self._faults.get(about) != text:
            self._faults[about] = text
            notice = ObjectWarning(about, "Warning", "InvalidNamespaceWeight", text)
            self._object_warnings.add(notice, lambda: self._faults.get(about) == text)
        return None


def _amounts(stated: Mapping[str, object]) -> Limits:
    """Parse the amounts of a ResourceQuota or granted quota under the object's own keys; unreadable ones are
    skipped (the API server admits none)."""
    amounts: dict[str, int] = {}
    for name, value in stated.items():
        if name == WEIGHT:
            continue
        resource = name.removeprefix("requests.").removeprefix("limits.")
        try:
            amounts[name] = parse_amount(resource, value)
        except QuantityError:
            continue
    return limits_of(amounts)
