"""Usage of one object for ResourceQuotas.

https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from phalanx.model.pod_quota import NONE, ONE, Amounts, amounts, pod_usage
from phalanx.model.text.quantity import NANO, Quantity
from phalanx_local.clock import parse_timestamp
from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.strategies.pods import TERMINAL

PODS, SERVICES, CLAIMS, DEVICE_CLAIMS = (
    "/pods",
    "/services",
    "/persistentvolumeclaims",
    "resource.k8s.io/resourceclaims",
)
#: Storages whose objects are charged for more than their count.
MEASURED: Final = frozenset((PODS, SERVICES, CLAIMS, DEVICE_CLAIMS))
_BY_NAME: Final = frozenset(
    ("services", "replicationcontrollers", "secrets", "configmaps", "resourcequotas", "persistentvolumeclaims")
)
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
#: Number of devices that a request with allocationMode All is charged for: the maximum of one claim.
_MAX_DEVICES: Final = 32


def usage_of(storage: str, obj: Json | None, now: float) -> Amounts:
    """Return how much an object uses of each resource name of ResourceQuotas. `obj` is only read for MEASURED
    storages."""
    group, _, plural = storage.partition("/")
    usage: Amounts = {f"count/{plural}.{group}" if group else f"count/{plural}": ONE}
    if not group and plural in _BY_NAME:
        usage[plural] = ONE
    if obj is None:
        return usage
    if storage == PODS:
        if not _is_over(obj, now):
            usage |= pod_usage(mapping(obj.get("spec")))
    elif storage == SERVICES:
        usage |= _service_usage(mapping(obj.get("spec")))
    elif storage == CLAIMS:
        usage |= _claim_usage(obj)
    elif storage == DEVICE_CLAIMS:
        usage |= _device_usage(mapping(mapping(obj.get("spec")).get("devices")))
    return usage


def expiry(pod: Json) -> float | None:
    """Return the time from which a terminating pod uses no quota; None for other pods."""
    meta = metadata(pod)
    deleted, grace = parse_timestamp(meta.get("deletionTimestamp")), meta.get("deletionGracePeriodSeconds")
    return deleted + grace if deleted is not None and isinstance(grace, int) else None


def _is_over(pod: Json, now: float) -> bool:
    if mapping(pod.get("status")).get("phase") in TERMINAL:
        return True
    end = expiry(pod)
    return end is not None and now > end


# --- other kinds


def _service_usage(spec: Json) -> Amounts:
    kind, ports = spec.get("type"), sequence(spec.get("ports"))
    nodeports = len(ports) if kind in ("NodePort", "LoadBalancer") else 0
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        nodeports = sum(1 for port in ports if mapping(port).get("nodePort"))
    return {
        "services.nodeports": Quantity(nodeports * NANO),
        "services.loadbalancers": ONE if kind == "LoadBalancer" else NONE,
    }


def _claim_usage(claim: Json) -> Amounts:
    spec = mapping(claim.get("spec"))
    name = text(mapping(metadata(claim).get("annotations")).get(_BETA_CLASS)) or text(spec.get("storageClassName"))
    prefix = f"{name}.storageclass.storage.k8s.io/"
    usage: Amounts = {f"{prefix}persistentvolumeclaims": ONE} if name else {}
    size = amounts(mapping(spec.get("resources")).get("requests")).get("storage")
    if size is not None:
        usage["requests.storage"] = size
        if name:
            usage[f"{prefix}requests.storage"] = size
    return usage


def _device_usage(devices: Json) -> Amounts:
    """Return the devices that a ResourceClaim can use, by device class: of alternative requests the maximum."""
    counts: dict[str, int] = {}
    for item in sequence(devices.get("requests")):
        request = mapping(item)
        maximum: dict[str, int] = {}
        for choice in _choices(request):
            name = text(choice.get("deviceClassName"))
            count = choice.get("count", 1) if choice.get("allocationMode") != "All" else _MAX_DEVICES
            maximum[name] = max(maximum.get(name, 0), count if isinstance(count, int) else 0)
        for name, count in maximum.items():
            counts[name] = counts.get(name, 0) + count
    return {f"{name}.deviceclass.resource.k8s.io/devices": Quantity(count * NANO) for name, count in counts.items()}


def _choices(request: Json) -> Iterable[Json]:
    alternatives = sequence(request.get("firstAvailable"))
    if alternatives:
        return [mapping(item) for item in alternatives]
    exact = mapping(request.get("exactly"))
    return [exact] if exact else []
