"""Whether a pod may be on its node at all: the kubelet's second look at selectors, affinity and NoExecute taints.

Written one node at a time and from the rules alone, so it is also an independent check of a scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.selectors import Requirement, Taint, parse_int64, tolerates
from phalanx_local.nodeagent.capacity import Rejection
from phalanx_local.nodeagent.core_v1 import V1NodeSelectorTerm, V1PodSpec


class NodeFacts(msgspec.Struct, frozen=True):
    """What selectors and taints of a node are judged by."""

    name: str
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()


def objection(place: NodeFacts, spec: V1PodSpec) -> Rejection | None:
    """Why the pod must not be there, in the kubelet's words, or None.

    Taints other than NoExecute do not matter any more once a pod is bound.
    """
    selected = all(place.labels.get(key) == value for key, value in (spec.node_selector or {}).items())
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    if not selected or (
        required is not None and not any(term_holds(place, term) for term in required.node_selector_terms)
    ):
        return Rejection("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match")
    for taint in place.taints:
        if taint.effect == "NoExecute" and not any(tolerates(each, taint) for each in spec.tolerations or ()):
            return Rejection(
                "TaintToleration", f"Pod was rejected: Predicate TaintToleration failed: untolerated taint {taint}"
            )
    return None


def term_holds(place: NodeFacts, term: V1NodeSelectorTerm) -> bool:
    if not (term.match_expressions or term.match_fields):
        return False
    named = {"metadata.name": place.name}
    return all(_holds(place.labels, each) for each in term.match_expressions) and all(
        _holds(named, each) for each in term.match_fields
    )


def _holds(values: Mapping[str, str], requirement: Requirement) -> bool:
    actual = values.get(requirement.key)
    match requirement.operator:
        case "In":
            return actual in requirement.values
        case "NotIn":
            return actual not in requirement.values
        case "Exists":
            return actual is not None
        case "DoesNotExist":
            return actual is None
        case "Gt" | "Lt":
            bound = _integer(requirement.values[0]) if len(requirement.values) == 1 else None
            number = _integer(actual)
            if bound is None or number is None:
                return False
            return number > bound if requirement.operator == "Gt" else number < bound
    return False


def _integer(text: str | None) -> int | None:
    return parse_int64(text) if text is not None else None
