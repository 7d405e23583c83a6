"""What one object uses of a ResourceQuota's resources.

https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from phalanx.model.text.quantity import NANO, Quantity, QuantityError, read_quantity
from phalanx_local.clock import parse_timestamp
from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.strategies.pods import TERMINAL

Amounts = dict[str, Quantity]

PODS, SERVICES, CLAIMS, DEVICE_CLAIMS = (
    "/pods",
    "/services",
    "/persistentvolumeclaims",
    "resource.k8s.io/resourceclaims",
)
#: Storages whose objects use more than their number.
MEASURED: Final = frozenset((PODS, SERVICES, CLAIMS, DEVICE_CLAIMS))
_BY_NAME: Final = frozenset(
    ("services", "replicationcontrollers", "secrets", "configmaps", "resourcequotas", "persistentvolumeclaims")
)
_ONE: Final = Quantity(NANO)
_NONE: Final = Quantity(0)
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_HUGE: Final = "hugepages-"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
#: Devices of a request for all of them: what one claim can be allocated at most.
_MOST_DEVICES: Final = 32


def usage_of(storage: str, obj: Json | None, now: float) -> Amounts:
    """The amounts by the names under which quotas limit them. `obj` is not looked at outside MEASURED storages."""
    group, _, plural = storage.partition("/")
    found: Amounts = {f"count/{plural}.{group}" if group else f"count/{plural}": _ONE}
    if not group and plural in _BY_NAME:
        found[plural] = _ONE
    if obj is None:
        return found
    if storage == PODS:
        if not _is_over(obj, now):
            found |= _pod_usage(mapping(obj.get("spec")))
    elif storage == SERVICES:
        found |= _service_usage(mapping(obj.get("spec")))
    elif storage == CLAIMS:
        found |= _claim_usage(obj)
    elif storage == DEVICE_CLAIMS:
        found |= _device_usage(mapping(mapping(obj.get("spec")).get("devices")))
    return found


def limits_pods(name: str) -> bool:
    """Whether a name of a quota is about pods, whatever a single one of them uses."""
    if name in ("pods", "count/pods") or name.startswith(_HUGE):
        return True
    side, _, resource = name.partition(".")
    if side not in ("requests", "limits"):
        return name in _STANDARD
    if resource in _STANDARD:
        return True
    return side == "requests" and (resource.startswith(_HUGE) or _is_extended(resource))


def plus(left: Quantity, right: Quantity) -> Quantity:
    """The sum, spelled as the first amount that is not nothing."""
    return Quantity(left.nano + right.nano, left.style if left.nano else right.style)


def expiry(pod: Json) -> float | None:
    """When a pod that is being deleted stops to count although it is still there; None for any other."""
    meta = metadata(pod)
    deleted, grace = parse_timestamp(meta.get("deletionTimestamp")), meta.get("deletionGracePeriodSeconds")
    return deleted + grace if deleted is not None and isinstance(grace, int) else None


def _is_over(pod: Json, now: float) -> bool:
    if mapping(pod.get("status")).get("phase") in TERMINAL:
        return True
    end = expiry(pod)
    return end is not None and now > end


# --- pods


def _pod_usage(spec: Json) -> Amounts:
    requests, limits = _total(spec, "requests"), _total(spec, "limits")
    for name, amount in amounts(spec.get("overhead")).items():
        requests[name] = plus(requests.get(name, _NONE), amount)
        if limits.get(name, _NONE).nano:
            limits[name] = plus(limits[name], amount)
    return {"pods": _ONE, **compute(requests, limits)}


def compute(requests: Amounts, limits: Amounts) -> Amounts:
    """Requests and limits under the names of quotas; only the standard resources are limited by their limits."""
    found: Amounts = {}
    for name, amount in requests.items():
        if name in _STANDARD or name.startswith(_HUGE):
            found[name] = found[f"requests.{name}"] = amount
        elif _is_extended(name):
            found[f"requests.{name}"] = amount
    for name, amount in limits.items():
        if name in _STANDARD:
            found[f"limits.{name}"] = amount
    return found


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def _total(spec: Json, side: str) -> Amounts:
    """Of all containers that run together, or of an init container with the sidecars before it if that is more."""
    running: Amounts = {}
    for container in sequence(spec.get("containers")):
        _add(running, _side(container, side))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in sequence(spec.get("initContainers")):
        asked = _side(container, side)
        if mapping(container).get("restartPolicy") == "Always":
            _add(sidecars, asked)
            _raise(starting, sidecars)
        else:
            _add(asked, sidecars)
            _raise(starting, asked)
    _add(running, sidecars)
    _raise(running, starting)
    for name, amount in amounts(mapping(spec.get("resources")).get(side)).items():
        if name in ("cpu", "memory") or name.startswith(_HUGE):
            running[name] = amount
    return running


def _side(container: object, side: str) -> Amounts:
    return amounts(mapping(mapping(container).get("resources")).get(side))


def amounts(listed: object) -> Amounts:
    """The quantities of a resource list; what is none is left out (validation has refused it)."""
    found: Amounts = {}
    for name, value in mapping(listed).items():
        try:
            found[name] = read_quantity(value)
        except QuantityError:
            continue
    return found


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = plus(total.get(name, _NONE), amount)


def _raise(total: Amounts, other: Amounts) -> None:
    for name, amount in other.items():
        if name not in total or amount > total[name]:
            total[name] = amount


# --- other kinds


def _service_usage(spec: Json) -> Amounts:
    kind, ports = spec.get("type"), sequence(spec.get("ports"))
    nodeports = len(ports) if kind in ("NodePort", "LoadBalancer") else 0
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        nodeports = sum(1 for port in ports if mapping(port).get("nodePort"))
    return {
        "services.nodeports": Quantity(nodeports * NANO),
        "services.loadbalancers": _ONE if kind == "LoadBalancer" else _NONE,
    }


def _claim_usage(claim: Json) -> Amounts:
    spec = mapping(claim.get("spec"))
    name = text(mapping(metadata(claim).get("annotations")).get(_BETA_CLASS)) or text(spec.get("storageClassName"))
    prefix = f"{name}.storageclass.storage.k8s.io/"
    found: Amounts = {f"{prefix}persistentvolumeclaims": _ONE} if name else {}
    size = amounts(mapping(spec.get("resources")).get("requests")).get("storage")
    if size is not None:
        found["requests.storage"] = size
        if name:
            found[f"{prefix}requests.storage"] = size
    return found


def _device_usage(devices: Json) -> Amounts:
    """The devices of each class that a claim may come to hold: of alternatives the most."""
    counts: dict[str, int] = {}
    for item in sequence(devices.get("requests")):
        request = mapping(item)
        most: dict[str, int] = {}
        for choice in _choices(request):
            name = text(choice.get("deviceClassName"))
            count = choice.get("count", 1) if choice.get("allocationMode") != "All" else _MOST_DEVICES
            most[name] = max(most.get(name, 0), count if isinstance(count, int) else 0)
        for name, count in most.items():
            counts[name] = counts.get(name, 0) + count
    return {f"{name}.deviceclass.resource.k8s.io/devices": Quantity(count * NANO) for name, count in counts.items()}


def _choices(request: Json) -> Iterable[Json]:
    alternatives = sequence(request.get("firstAvailable"))
    if alternatives:
        return [mapping(item) for item in alternatives]
    exact = mapping(request.get("exactly"))
    return [exact] if exact else []
