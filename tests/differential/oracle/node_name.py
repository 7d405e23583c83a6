"""NodeName. Source: pkg/scheduler/framework/plugins/nodename/node_name.go."""

from __future__ import annotations

from tests.differential.oracle.world import Wire, World


def objection(world: World, pod: Wire, node: Wire) -> str:
    wanted = pod["spec"].get("nodeName") or node["metadata"]["name"]
    return "" if wanted == node["metadata"]["name"] else "node(s) didn't match the requested node name"
