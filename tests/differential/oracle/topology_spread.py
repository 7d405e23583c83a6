"""PodTopologySpread's filter. Sources: common.go and filtering.go in
pkg/scheduler/framework/plugins/podtopologyspread.

For each constraint with DoNotSchedule: the matching pods in the node's domain, plus the pod itself where it
matches, may exceed the emptiest domain by at most maxSkew.

An empty selector matches every pod, by the API's definition. kube-scheduler is inconsistent: a full count skips
such a selector (countPodsMatchSelector), an incremental update does not (updateWithPod). Here the definition
decides.
"""

from __future__ import annotations

from typing import Any

from tests.differential.oracle.node_affinity import is_selected
from tests.differential.oracle.selectors import label_selector_matches
from tests.differential.oracle.taints import first_untolerated
from tests.differential.oracle.world import Wire, World, is_terminating, labels_of, namespace_of


def objection(world: World, pod: Wire, node: Wire) -> str:
    constraints = [
        entry
        for entry in pod["spec"].get("topologySpreadConstraints") or []
        if entry.get("whenUnsatisfiable") == "DoNotSchedule"
    ]
    labels = labels_of(node)
    for constraint in constraints:
        if constraint["topologyKey"] not in labels:
            return "node(s) didn't match pod topology spread constraints (missing required label)"
        counts = _counts(world, pod, constraint, constraints)
        least = min(counts.values(), default=2**31 - 1)
        if len(counts) < (constraint.get("minDomains") or 1):
            least = 0
        selector = _selector(constraint, pod)
        own = 1 if label_selector_matches(selector, labels_of(pod)) else 0
        here = counts.get(labels[constraint["topologyKey"]], 0)
        if here + own - least > constraint["maxSkew"]:
            return "node(s) didn't match pod topology spread constraints"
    return ""


def _counts(world: World, pod: Wire, constraint: Wire, constraints: list[Wire]) -> dict[str, int]:
    """domain -> matching pods, over the nodes that count: those with the keys of ALL constraints."""
    counts: dict[str, int] = {}
    for node in world.nodes:
        labels = labels_of(node)
        if not all(entry["topologyKey"] in labels for entry in constraints):
            continue
        if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not is_selected(pod, node):
            continue
        if constraint.get("nodeTaintsPolicy", "Ignore") == "Honor" and first_untolerated(pod, node) is not None:
            continue
        domain = labels[constraint["topologyKey"]]
        counts[domain] = counts.get(domain, 0) + _matching(world, pod, constraint, node)
    return counts


def _matching(world: World, pod: Wire, constraint: Wire, node: Wire) -> int:
    selector = _selector(constraint, pod)
    return sum(
        label_selector_matches(selector, labels_of(other))
        for other in world.tenants(node["metadata"]["name"])
        if not is_terminating(other) and namespace_of(other) == namespace_of(pod)
    )


def _selector(constraint: Wire, pod: Wire) -> dict[str, Any] | None:
    """labelSelector, and the pod's own values of matchLabelKeys."""
    selector = constraint.get("labelSelector")
    own = labels_of(pod)
    values = {key: own[key] for key in constraint.get("matchLabelKeys") or [] if key in own}
    if selector is None or not values:
        return selector
    expressions = list(selector.get("matchExpressions") or [])
    expressions += [{"key": key, "operator": "In", "values": [value]} for key, value in values.items()]
    return {**selector, "matchExpressions": expressions}
