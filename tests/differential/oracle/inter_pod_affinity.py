"""InterPodAffinity's filter. Sources: pkg/scheduler/framework/plugins/interpodaffinity/filtering.go, plugin.go,
staging/src/k8s.io/kube-scheduler/framework/types.go (AffinityTerm.Matches).

matchLabelKeys and mismatchLabelKeys do not appear: the API server has merged them into the label selector. Pods
on missing nodes, or on nodes without the topology key, are in no domain.
"""

from __future__ import annotations

from tests.differential.oracle.selectors import UnreadableSelectorError, label_selector_matches
from tests.differential.oracle.world import Wire, World, labels_of, namespace_of

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def objection(world: World, pod: Wire, node: Wire) -> str:
    if not _affinity_holds(world, pod, node):
        return "node(s) didn't match pod affinity rules"
    if not _anti_affinity_holds(world, pod, node):
        return "node(s) didn't match pod anti-affinity rules"
    if not _is_accepted_by_others(world, pod, node):
        return "node(s) didn't satisfy existing pods anti-affinity rules"
    return ""


def _affinity_holds(world: World, pod: Wire, node: Wire) -> bool:
    """Every term has, in the node's domain, a pod that matches ALL terms; or the pod is the first of its kind."""
    terms = required_terms(pod, "podAffinity")
    if not terms:
        return True
    labels = labels_of(node)
    if any(term["topologyKey"] not in labels for term in terms):
        return False
    companions = [other for other in world.running() if _matches_all(world, terms, pod, other)]
    if all(any(_shares_domain(world, other, node, term["topologyKey"]) for other in companions) for term in terms):
        return True
    # No pod matches in any domain of any term, and the pod matches its own terms.
    in_some_domain = [
        other
        for other in companions
        if any(_domain(world, other, term["topologyKey"]) is not None for term in terms)
    ]
    return not in_some_domain and _matches_all(world, terms, pod, pod)


def _anti_affinity_holds(world: World, pod: Wire, node: Wire) -> bool:
    for term in required_terms(pod, "podAntiAffinity"):
        for other in world.running():
            if _means(world, term, pod, other) and _shares_domain(world, other, node, term["topologyKey"]):
                return False
    return True


def _is_accepted_by_others(world: World, pod: Wire, node: Wire) -> bool:
    """Return whether no existing pod rejects the new one by required anti-affinity (the symmetric half)."""
    for other in world.running():
        for term in _readable_terms(other):
            if _means(world, term, other, pod) and _shares_domain(world, other, node, term["topologyKey"]):
                return False
    return True


def required_terms(pod: Wire, kind: str) -> list[Wire]:
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return list(affinity.get(_REQUIRED) or [])


def _readable_terms(pod: Wire) -> list[Wire]:
    """Return the terms of a pod, or none where one of them cannot be parsed."""
    terms = required_terms(pod, "podAntiAffinity")
    try:
        for term in terms:
            label_selector_matches(term.get("labelSelector"), {})
            label_selector_matches(term.get("namespaceSelector"), {})
    except UnreadableSelectorError:
        return []
    return terms


def _matches_all(world: World, terms: list[Wire], owner: Wire, other: Wire) -> bool:
    return all(_means(world, term, owner, other) for term in terms)


def _means(world: World, term: Wire, owner: Wire, other: Wire) -> bool:
    """Return whether a term of `owner` selects `other`, by namespace and by labels."""
    namespaces, selector = term.get("namespaces") or [], term.get("namespaceSelector")
    if not namespaces and selector is None:
        namespaces = [namespace_of(owner)]
    space = namespace_of(other)
    chosen = space in namespaces or label_selector_matches(selector, world.namespace_labels(space))
    return chosen and label_selector_matches(term.get("labelSelector"), labels_of(other))


def _shares_domain(world: World, other: Wire, node: Wire, key: str) -> bool:
    domain = _domain(world, other, key)
    return domain is not None and labels_of(node).get(key) == domain


def _domain(world: World, pod: Wire, key: str) -> str | None:
    node = world.node(pod["spec"]["nodeName"])
    return labels_of(node).get(key) if node is not None else None
