"""Usage of a pod in terms of ResourceQuotas, and the quotas that select it.

https://kubernetes.io/docs/concepts/policy/resource-quotas/ ; pods and quotas are JSON here, because the functions
serve both existing and future pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from phalanx.model.text.quantity import NANO, Quantity, QuantityError, read_quantity

Json = dict[str, Any]
Amounts = dict[str, Quantity]

ONE: Final = Quantity(NANO)
NONE: Final = Quantity(0)
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_HUGE: Final = "hugepages-"


def mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def limits_pods(name: str) -> bool:
    """Return whether a resource name of a ResourceQuota is about pods."""
    if name in ("pods", "count/pods") or name.startswith(_HUGE):
        return True
    side, _, resource = name.partition(".")
    if side not in ("requests", "limits"):
        return name in _STANDARD
    if resource in _STANDARD:
        return True
    return side == "requests" and (resource.startswith(_HUGE) or _is_extended(resource))


def plus(left: Quantity, right: Quantity) -> Quantity:
    """Return the sum of two quantities, printed in the style of the first non-zero one."""
    return Quantity(left.nano + right.nano, left.style if left.nano else right.style)


def pod_usage(spec: Json) -> Amounts:
    """Return how much a pod with this spec uses of each resource name of ResourceQuotas."""
    requests, limits = _total(spec, "requests"), _total(spec, "limits")
    for name, amount in amounts(spec.get("overhead")).items():
        requests[name] = plus(requests.get(name, NONE), amount)
        if limits.get(name, NONE).nano:
            limits[name] = plus(limits[name], amount)
    return {"pods": ONE, **compute(requests, limits)}


def compute(requests: Amounts, limits: Amounts) -> Amounts:
    """Return requests and limits by the resource names of ResourceQuotas; only standard resources have names for
    limits."""
    usage: Amounts = {}
    for name, amount in requests.items():
        if name in _STANDARD or name.startswith(_HUGE):
            usage[name] = usage[f"requests.{name}"] = amount
        elif _is_extended(name):
            usage[f"requests.{name}"] = amount
    for name, amount in limits.items():
        if name in _STANDARD:
            usage[f"limits.{name}"] = amount
    return usage


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def _total(spec: Json, side: str) -> Amounts:
    """Return the requests (or limits) of a pod: the sum of all simultaneous containers, or the peak of an init
    container with earlier sidecars."""
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
    resources = mapping(mapping(container).get("resources"))
    stated = amounts(resources.get(side))
    # The API server defaults requests to the limits.
    return amounts(resources.get("limits")) | stated if side == "requests" else stated


def amounts(listed: object) -> Amounts:
    """Return the quantities of a resource list, without invalid ones (validation has rejected them)."""
    quantities: Amounts = {}
    for name, value in mapping(listed).items():
        try:
            quantities[name] = read_quantity(value)
        except QuantityError:
            continue
    return quantities


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = plus(total.get(name, NONE), amount)


def _raise(total: Amounts, other: Amounts) -> None:
    for name, amount in other.items():
        if name not in total or amount > total[name]:
            total[name] = amount


class ScopeSelector(NamedTuple):
    """Scope of a ResourceQuota with an operator (Exists, DoesNotExist, In, NotIn) and values."""

    scope: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


def selectors_of(spec: Json) -> tuple[ScopeSelector, ...]:
    """Return the scopes in a ResourceQuota's spec; a pod must match all of them."""
    plain = [ScopeSelector(text(scope)) for scope in sequence(spec.get("scopes"))]
    listed = [mapping(item) for item in sequence(mapping(spec.get("scopeSelector")).get("matchExpressions"))]
    return (
        *plain,
        *(
            ScopeSelector(
                text(item.get("scopeName")),
                text(item.get("operator")),
                tuple(text(value) for value in sequence(item.get("values"))),
            )
            for item in listed
        ),
    )


def pod_matches(selector: ScopeSelector, spec: Json) -> bool:
    """Return whether a pod with this spec is within a ResourceQuota's scope; an unknown scope contains no pod."""
    if selector.scope in ("Terminating", "NotTerminating"):
        limited = isinstance(spec.get("activeDeadlineSeconds"), int)
        return limited is (selector.scope == "Terminating")
    if selector.scope in ("BestEffort", "NotBestEffort"):
        return (qos_class(spec) == "BestEffort") is (selector.scope == "BestEffort")
    if selector.scope == "PriorityClass":
        return _class_matches(selector, text(spec.get("priorityClassName")))
    if selector.scope == "CrossNamespacePodAffinity":
        return _crosses_namespaces(spec)
    return False


def _class_matches(selector: ScopeSelector, name: str) -> bool:
    if selector.operator in ("Exists", "DoesNotExist"):
        return bool(name) is (selector.operator == "Exists")
    if selector.operator == "In":
        return bool(name) and name in selector.values
    return selector.operator == "NotIn" and name not in selector.values


def _crosses_namespaces(spec: Json) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = mapping(mapping(spec.get("affinity")).get(kind))
        required = sequence(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
        preferred = sequence(affinity.get("preferredDuringSchedulingIgnoredDuringExecution"))
        terms = [mapping(item) for item in required]
        terms += [mapping(mapping(item).get("podAffinityTerm")) for item in preferred]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False


def qos_class(spec: Json) -> str:
    """Return the QoS class of a pod (Guaranteed, Burstable or BestEffort), from cpu and memory of the pod or of all
    its containers."""
    pod_level = mapping(spec.get("resources"))
    holders = [pod_level] if pod_level else [mapping(mapping(item).get("resources")) for item in _containers(spec)]
    guaranteed, anything = bool(holders), False
    for resources in holders:
        requests, limits = mapping(resources.get("requests")), mapping(resources.get("limits"))
        for name in ("cpu", "memory"):
            limit = _amount(limits.get(name))
            request = _amount(requests[name]) if name in requests else limit
            anything = anything or request > 0 or limit > 0
            guaranteed = guaranteed and limit > 0 and request == limit
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _containers(spec: Json) -> Iterator[object]:
    for group in ("initContainers", "containers"):
        yield from sequence(spec.get(group))


def _amount(quantity: object) -> int:
    try:
        return read_quantity(quantity).nano if quantity is not None else 0
    except QuantityError:
        return 0
