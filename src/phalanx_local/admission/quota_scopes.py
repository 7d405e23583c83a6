"""The scopes of a ResourceQuota: which pods it is about.

https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-scopes
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx_local.objects import Json, dig, mapping, sequence, text
from phalanx_local.strategies.pods import qos_class


class Selector(NamedTuple):
    """A scope with an operator (Exists, DoesNotExist, In, NotIn) and values."""

    scope: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


def selectors_of(spec: Json) -> tuple[Selector, ...]:
    """The scopes of a quota's spec; a pod must match all."""
    plain = [Selector(text(scope)) for scope in sequence(spec.get("scopes"))]
    listed = [mapping(item) for item in sequence(mapping(spec.get("scopeSelector")).get("matchExpressions"))]
    return (
        *plain,
        *(
            Selector(
                text(item.get("scopeName")),
                text(item.get("operator")),
                tuple(text(value) for value in sequence(item.get("values"))),
            )
            for item in listed
        ),
    )


def pod_matches(selector: Selector, pod: Json) -> bool:
    """Whether a pod is within a scope; a scope that is not known holds no pod."""
    spec = mapping(pod.get("spec"))
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


def _class_matches(selector: Selector, name: str) -> bool:
    if selector.operator in ("Exists", "DoesNotExist"):
        return bool(name) is (selector.operator == "Exists")
    if selector.operator == "In":
        return bool(name) and name in selector.values
    return selector.operator == "NotIn" and name not in selector.values


def _crosses_namespaces(spec: Json) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = mapping(dig(spec, "affinity", kind))
        required = sequence(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
        preferred = sequence(affinity.get("preferredDuringSchedulingIgnoredDuringExecution"))
        terms = [mapping(item) for item in required]
        terms += [mapping(mapping(item).get("podAffinityTerm")) for item in preferred]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False
