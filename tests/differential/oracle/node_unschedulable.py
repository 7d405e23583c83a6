"""NodeUnschedulable. Source: pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go.

A cordoned node takes only pods that tolerate the taint node.kubernetes.io/unschedulable:NoSchedule.
"""

from __future__ import annotations

from tests.differential.oracle.taints import is_tolerated
from tests.differential.oracle.world import Wire, World

_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def objection(world: World, pod: Wire, node: Wire) -> str:
    if (node.get("spec") or {}).get("unschedulable") and not is_tolerated(_TAINT, pod):
        return "node(s) were unschedulable"
    return ""
