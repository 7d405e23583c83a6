"""Every plugin's opinion on one pod and one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.differential.oracle import (
    declared_features,
    dynamic_resources,
    inter_pod_affinity,
    node_affinity,
    node_name,
    node_ports,
    node_unschedulable,
    resources_fit,
    taints,
    topology_spread,
    volume_binding,
    volume_limits,
    volume_restrictions,
    volume_zone,
)
from tests.differential.oracle.world import Wire, World

Rule = Callable[[World, Wire, Wire], str]

# In the order in which kube-scheduler asks them by default (pkg/scheduler/apis/config/v1/default_plugins.go).
PLUGINS: Mapping[str, Rule] = {
    "NodeUnschedulable": node_unschedulable.objection,
    "NodeName": node_name.objection,
    "TaintToleration": taints.objection,
    "NodeAffinity": node_affinity.objection,
    "NodePorts": node_ports.objection,
    "NodeResourcesFit": resources_fit.objection,
    "VolumeRestrictions": volume_restrictions.objection,
    "NodeVolumeLimits": volume_limits.objection,
    "VolumeBinding": volume_binding.objection,
    "VolumeZone": volume_zone.objection,
    "PodTopologySpread": topology_spread.objection,
    "InterPodAffinity": inter_pod_affinity.objection,
    "DynamicResources": dynamic_resources.objection,
    "NodeDeclaredFeatures": declared_features.objection,
}


def objections(world: World, pod: Wire, node: Wire) -> dict[str, str]:
    """plugin -> its reason, for every plugin that says no; empty where the pod may go there."""
    found = {}
    for name, rule in PLUGINS.items():
        reason = rule(world, pod, node)
        if reason:
            found[name] = reason
    return found
