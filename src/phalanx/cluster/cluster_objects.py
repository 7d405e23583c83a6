"""What is neither a pod, a node nor a group, and says what may be done with them."""

from __future__ import annotations

from phalanx.cluster.composites import Composites
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.pods.observation import renew
from phalanx.model.account import ResourceQuota
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import (
    ClusterEvent,
    CompositeRemoved,
    CompositeUpdated,
    DisruptionBudgetRemoved,
    DisruptionBudgetUpdated,
    HyperNodeRemoved,
    HyperNodeUpdated,
    NodesMeasured,
    ResourceQuotaRemoved,
    ResourceQuotaUpdated,
)


class ClusterObjects:
    """ResourceQuotas and PodDisruptionBudgets by namespace and name, the domains of the network, and groups
    of groups."""

    def __init__(self, nodes: NodeTable, composites: Composites) -> None:
        self.composites = composites
        self.resource_quotas: dict[str, dict[str, ResourceQuota]] = {}
        self.budgets: dict[str, dict[str, DisruptionBudget]] = {}
        self.topology = nodes.topology
        self._load = nodes.load

    def learn(self, event: ClusterEvent) -> bool:
        """Takes in one fact; whether it is news, after which what was refused may be possible."""
        match event:
            case ResourceQuotaUpdated(quota):
                return renew(self.resource_quotas, quota)
            case ResourceQuotaRemoved(namespace, name):
                return self.resource_quotas.get(namespace, {}).pop(name, None) is not None
            case DisruptionBudgetUpdated(budget):
                return renew(self.budgets, budget)
            case DisruptionBudgetRemoved(namespace, name):
                return self.budgets.get(namespace, {}).pop(name, None) is not None
            case CompositeUpdated(composite):
                return self.composites.put(composite)
            case CompositeRemoved(key):
                return self.composites.drop(key)
            case HyperNodeUpdated(hypernode):
                return self.topology.put(hypernode)
            case HyperNodeRemoved(name):
                return self.topology.drop(name)
            case NodesMeasured(loads, gone):
                return self._load.learn(loads, gone)
        return False
