"""Kubelet's check of selectors, affinity and NoExecute taints when a pod arrives on its node.

The check handles one node at a time and implements the rules independently of the scheduler, so it verifies the
scheduler too.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.selectors import Requirement, Taint, parse_int64, tolerates
from phalanx_local.nodeagent.capacity import Rejection
from phalanx_local.nodeagent.core_v1 import V1NodeSelectorTerm, V1PodSpec


class NodeFacts(msgspec.Struct, frozen=True):
    """Labels and taints of a node that selectors and tolerations refer to."""

    name: str
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()


def objection(place: NodeFacts, spec: V1PodSpec) -> Rejection | None:
    """Return the kubelet's rejection of a pod that must not run on the node because of selectors or NoExecute
    taints; None if it can.

    Taints with another effect do not affect a bound pod.
    """
    selected = all(place.labels.get(key) == value for key, value in (spec.node_selector or {}).items())
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    if not selected or (
        required is not None and not any(term_holds(place, term) for term in required.node_selector_terms)
    ):
        return Rejection("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match")
    for taint in place.taints:
        if taint.effect == "NoExecute" and not any(
            tolerates(toleration, taint) for toleration in spec.tolerations or ()
        ):
            return Rejection(
                "TaintToleration", f"Pod was rejected: Predicate TaintToleration failed: untolerated taint {taint}"
            )
    return None


def term_holds(place: NodeFacts, term: V1NodeSelectorTerm) -> bool:
    if not (term.match_expressions or term.match_fields):
        return False
    named = {"metadata.name": place.name}
    return all(_holds(place.labels, requirement) for requirement in term.match_expressions) and all(
        _holds(named, requirement) for requirement in term.match_fields
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
