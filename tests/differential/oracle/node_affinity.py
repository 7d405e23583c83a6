"""NodeAffinity with nodeSelector. Sources: pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go,
staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go (GetRequiredNodeAffinity).
"""

from __future__ import annotations

from tests.differential.oracle.selectors import node_selector_matches
from tests.differential.oracle.world import Wire, World, labels_of


def objection(world: World, pod: Wire, node: Wire) -> str:
    return "" if is_selected(pod, node) else "node(s) didn't match Pod's node affinity/selector"


def is_selected(pod: Wire, node: Wire) -> bool:
    """All of nodeSelector, and one term of the required affinity where one is stated."""
    labels = labels_of(node)
    for key, value in (pod["spec"].get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or node_selector_matches(required, node)
