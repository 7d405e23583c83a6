"""Events for `ClusterState`: small frozen values about changed API objects, applied one by one."""

from __future__ import annotations

import msgspec

from phalanx.model.account import Account, AccountKey, ResourceQuota
from phalanx.model.advance_reservation import AdvanceReservation
from phalanx.model.composite import Composite
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.gang import Gang, GangKey
from phalanx.model.maintenance import MaintenanceSignal, MaintenanceWindow
from phalanx.model.node import Node
from phalanx.model.node_load import NodeLoad
from phalanx.model.node_rejection import NodeBackoffEntry
from phalanx.model.pod import Pod, PodClass
from phalanx.model.topology import HyperNode


class NodeUpdated(msgspec.Struct, frozen=True):
    node: Node


class NodeRemoved(msgspec.Struct, frozen=True):
    name: str


class PodUpdated(msgspec.Struct, frozen=True, gc=False):
    pod: Pod


class PodRemoved(msgspec.Struct, frozen=True, gc=False):
    uid: str


class GangUpdated(msgspec.Struct, frozen=True, gc=False):
    gang: Gang


class GangRemoved(msgspec.Struct, frozen=True, gc=False):
    key: GangKey


class AccountUpdated(msgspec.Struct, frozen=True):
    account: Account


class AccountRemoved(msgspec.Struct, frozen=True):
    key: AccountKey


class NamespaceWeighed(msgspec.Struct, frozen=True):
    """Event: the weight of a namespace among the namespaces of its queue; the default is 1."""

    namespace: str
    weight: int


class NamespaceQuotasGranted(msgspec.Struct, frozen=True):
    """Event: the quotas that pods of a namespace can name, besides those that apply to the namespace anyway."""

    namespace: str
    quotas: tuple[str, ...]


class NamespaceLabelled(msgspec.Struct, frozen=True):
    """Event: the labels of a namespace, for the namespace selectors of pods; empty after its deletion."""

    namespace: str
    labels: tuple[tuple[str, str], ...]


class ResourceQuotaUpdated(msgspec.Struct, frozen=True):
    quota: ResourceQuota


class ResourceQuotaRemoved(msgspec.Struct, frozen=True):
    namespace: str
    name: str


class DisruptionBudgetUpdated(msgspec.Struct, frozen=True):
    budget: DisruptionBudget


class DisruptionBudgetRemoved(msgspec.Struct, frozen=True):
    namespace: str
    name: str


class HyperNodeUpdated(msgspec.Struct, frozen=True):
    hypernode: HyperNode


class HyperNodeRemoved(msgspec.Struct, frozen=True):
    name: str


class CompositeUpdated(msgspec.Struct, frozen=True):
    composite: Composite


class CompositeRemoved(msgspec.Struct, frozen=True):
    key: GangKey


class MaintenanceWindowUpdated(msgspec.Struct, frozen=True):
    window: MaintenanceWindow


class MaintenanceWindowRemoved(msgspec.Struct, frozen=True):
    name: str


class AdvanceReservationUpdated(msgspec.Struct, frozen=True):
    reservation: AdvanceReservation


class AdvanceReservationRemoved(msgspec.Struct, frozen=True):
    name: str


class NodeSignalled(msgspec.Struct, frozen=True):
    """Event: the maintenance signals about a node from one kind of object (`by`); empty if there are none any
    more."""

    node: str
    by: str
    signals: tuple[MaintenanceSignal, ...] = ()


class NodesMeasured(msgspec.Struct, frozen=True):
    """Event: the measured usage of nodes, and the nodes without current measurements."""

    loads: tuple[NodeLoad, ...]
    gone: tuple[str, ...] = ()


class PodRejected(msgspec.Struct, frozen=True):
    """Rejection of a pod by the kubelet of its node at `at` (seconds since the epoch), with the reason that the
    kubelet gave.
    """

    node: str
    reason: str
    namespace: str
    pod_class: PodClass
    at: int


class ProvisioningFailed(msgspec.Struct, frozen=True):
    """Failure to provision a volume of a storage class and `size` (bytes) for a pod of a namespace on a node, at
    `at` (seconds since the epoch).
    """

    node: str
    namespace: str
    storage_class: str
    size: int
    at: int


class NodeBackoffsRestored(msgspec.Struct, frozen=True):
    """Back-offs of nodes that another process has recorded."""

    entries: tuple[NodeBackoffEntry, ...]


class AllocatorFact(msgspec.Struct, frozen=True):
    """Event for one node allocator (ports, volumes, devices, ...) in `ClusterState.nodes.allocators`."""

    allocator: str
    fact: object


ClusterEvent = (
    NodeUpdated
    | NodeRemoved
    | PodUpdated
    | PodRemoved
    | GangUpdated
    | GangRemoved
    | AccountUpdated
    | AccountRemoved
    | NamespaceLabelled
    | NamespaceWeighed
    | NamespaceQuotasGranted
    | ResourceQuotaUpdated
    | ResourceQuotaRemoved
    | DisruptionBudgetUpdated
    | DisruptionBudgetRemoved
    | HyperNodeUpdated
    | HyperNodeRemoved
    | CompositeUpdated
    | CompositeRemoved
    | MaintenanceWindowUpdated
    | MaintenanceWindowRemoved
    | AdvanceReservationUpdated
    | AdvanceReservationRemoved
    | NodeSignalled
    | PodRejected
    | ProvisioningFailed
    | NodeBackoffsRestored
    | AllocatorFact
    | NodesMeasured
)
