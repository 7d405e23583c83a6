"""Objects beside pods, nodes and PodGroups that affect scheduling."""

from __future__ import annotations

from phalanx.cluster.composites import Composites
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.pods.observation import renew
from phalanx.model.account import ResourceQuota
from phalanx.model.advance_reservation import AdvanceReservation
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import (
    AdvanceReservationRemoved,
    AdvanceReservationUpdated,
    ClusterEvent,
    CompositeRemoved,
    CompositeUpdated,
    DisruptionBudgetRemoved,
    DisruptionBudgetUpdated,
    HyperNodeRemoved,
    HyperNodeUpdated,
    MaintenanceWindowRemoved,
    MaintenanceWindowUpdated,
    NodeSignalled,
    NodesMeasured,
    ResourceQuotaRemoved,
    ResourceQuotaUpdated,
)


class ClusterObjects:
    """ResourceQuotas and PodDisruptionBudgets by namespace and name, network domains, maintenance windows,
    advance reservations by name, and composites."""

    def __init__(self, nodes: NodeTable, composites: Composites) -> None:
        self.composites = composites
        self.resource_quotas: dict[str, dict[str, ResourceQuota]] = {}
        self.budgets: dict[str, dict[str, DisruptionBudget]] = {}
        self.topology = nodes.topology
        self.advance: dict[str, AdvanceReservation] = {}
        # Incremented with every change of an advance reservation.
        self.advance_version = 0
        self._load = nodes.load
        self._maintenance = nodes.maintenance

    def learn(self, event: ClusterEvent) -> bool:
        """Process an event about one of these objects. Return whether it changes anything, so that a rejected gang
        or pod can fit now."""
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
            case MaintenanceWindowUpdated(window):
                return self._maintenance.put(window)
            case MaintenanceWindowRemoved(name):
                return self._maintenance.drop(name)
            case AdvanceReservationUpdated(reservation):
                return self._set_advance(reservation.name, reservation)
            case AdvanceReservationRemoved(name):
                return self._set_advance(name, None)
            case NodeSignalled(node, by, signals):
                return self._maintenance.signal(node, by, signals)
            case NodesMeasured(loads, gone):
                return self._load.learn(loads, gone)
        return False

    def _set_advance(self, name: str, reservation: AdvanceReservation | None) -> bool:
        if self.advance.get(name) == reservation:
            return False
        self.advance_version += 1
        if reservation is None:
            del self.advance[name]
        else:
            self.advance[name] = reservation
        return True
