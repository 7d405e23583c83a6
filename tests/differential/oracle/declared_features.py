"""NodeDeclaredFeatures. Sources: pkg/scheduler/framework/plugins/nodedeclaredfeatures/nodedeclaredfeatures.go,
staging/src/k8s.io/component-helpers/nodedeclaredfeatures/features/.
"""

from __future__ import annotations

from tests.differential.oracle.world import Wire, World


def objection(world: World, pod: Wire, node: Wire) -> str:
    declared = set((node.get("status") or {}).get("declaredFeatures") or [])
    return "" if needed(pod) <= declared else "node(s) didn't match Pod's required features"


def needed(pod: Wire) -> set[str]:
    spec = pod["spec"]
    features = set()
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        features.add("UserNamespacesHostNetworkSupport")
    for container in (spec.get("containers") or []) + (spec.get("initContainers") or []):
        if any(rule.get("action") == "RestartAllContainers" for rule in container.get("restartPolicyRules") or []):
            features.add("RestartAllContainersOnContainerExits")
    return features
