"""`ClusterState`: everything the scheduler knows, kept current by events in O(change)."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.cluster.changes import Changes
from phalanx.cluster.classes import ClassTable
from phalanx.cluster.cluster_objects import ClusterObjects
from phalanx.cluster.gangs import GangTable
from phalanx.cluster.ledger import Ledger
from phalanx.cluster.node_table import NO_ROW, NodeTable
from phalanx.cluster.pods.occupancy import PodsByNode
from phalanx.cluster.pods.table import PodTable
from phalanx.cluster.pods.victim_index import VictimIndex, VictimTable
from phalanx.cluster.resource_space import ResourceSpace, exact_sums
from phalanx.cluster.transaction import Transaction, Transactions
from phalanx.model.events import (
    AccountRemoved,
    AccountUpdated,
    AllocatorFact,
    ClusterEvent,
    GangRemoved,
    GangUpdated,
    NamespaceLabelled,
    NamespaceQuotasGranted,
    NamespaceWeighed,
    NodeRemoved,
    NodeUpdated,
    PodRemoved,
    PodUpdated,
)
from phalanx.model.gang import GangKey
from phalanx.model.node import Node


class ClusterState:
    """One cluster as a value: no globals, no IO, no clock.

    Events change it one by one (`apply`), plans through `transaction` and the decisions of `pods` and `gangs`;
    `transactions` are those of the cycle under way. `objects` is what is neither a pod, a node nor a gang; of these
    `budgets` are PodDisruptionBudgets by namespace and name, `topology` are the domains of the network.
    """

    def __init__(self, schedulers: Collection[str] = ("phalanx",)) -> None:
        self.schedulers = frozenset(schedulers)
        self.space = ResourceSpace()
        self.nodes = NodeTable(self.space)
        self.classes = ClassTable(self.space, self.nodes.allocators.values())
        self.ledger = Ledger(self.schedulers, self.offered)
        self.victims = VictimIndex()
        self._changes = Changes()
        self._by_node = PodsByNode(self.nodes, self._changes, self.victims)
        self.gangs = GangTable(self.ledger, self._changes, self.victims)
        self.pods = PodTable(
            self.schedulers,
            self.nodes,
            self.classes,
            self.gangs,
            self.ledger,
            self._changes,
            self._by_node,
            self.victims,
        )
        self.objects = ClusterObjects(self.nodes, self.gangs.composites)
        self.resource_quotas = self.objects.resource_quotas
        self.budgets = self.objects.budgets
        self.topology = self.objects.topology
        self.transactions = Transactions(self.nodes)

    def apply(self, event: ClusterEvent) -> None:
        """Takes in one fact. Repeats and facts about unknown things are harmless."""
        if type(event) is PodUpdated:  # by far the most
            self.pods.observe(event.pod)
            return
        if type(event) is GangUpdated:
            self.gangs.declare(event.gang)
            return
        match event:
            case PodRemoved(uid):
                self.pods.delete(uid)
            case NodeUpdated(node):
                self._node_updated(node)
            case NodeRemoved(name):
                self._node_removed(name)
            case GangRemoved(key):
                self.gangs.withdraw(key)
            case AccountUpdated() | AccountRemoved() | NamespaceWeighed() | NamespaceQuotasGranted():
                self._changes.version += 1
                self.ledger.learn(event)
            case NamespaceLabelled(namespace, labels):
                self.pods.reclassify(self.nodes.affinity.label(namespace, labels))
                self._changes.may_fit()
            case AllocatorFact(allocator, fact):
                self._changes.version += 1
                if self.nodes.allocators[allocator].learn(fact):
                    self._changes.freed += 1
            case _:
                if self.objects.learn(event):
                    self._changes.may_fit()

    def transaction(self, charging: bool = True) -> Transaction:
        return self.transactions.begin(charging)

    def room_opened(self) -> None:
        """What was kept for somebody is not kept any more: what was refused may be possible now."""
        self._changes.may_fit()

    def offered(self) -> dict[str, int]:
        """resource -> what all nodes offer."""
        return dict(zip(self.space.names, exact_sums(self.nodes.allocatable), strict=True))

    def victim_table(self) -> VictimTable:
        """How many pods of which class of victims (`victims.kinds`) each row has."""
        return self._by_node.victim_table()

    def pop_changed(self) -> tuple[dict[GangKey, None], dict[str, None]]:
        """The gangs and standalone pods that changed since the last call, oldest change first."""
        return self._changes.pop()

    @property
    def version(self) -> int:
        """Grows with every change after which what was said may no longer be true."""
        return self._changes.version

    @property
    def capacity_version(self) -> int:
        """Grows with every change after which something that was refused may be possible."""
        return self._changes.freed + self.ledger.relief

    @property
    def bound_version(self) -> int:
        """Grows with every pod that has arrived where we placed it."""
        return self._changes.bound

    @property
    def affinity_version(self) -> int:
        """Grows when pods have come for whose sake others may go where they could not."""
        return self._by_node.affinity_version

    def _node_updated(self, node: Node) -> None:
        row = self.nodes.row(node.name)
        known = self.nodes.nodes[row] if row != NO_ROW else None
        if known == node:
            return
        self._changes.version += 1
        if known is None or (known.allocatable, known.taints) != (node.allocatable, node.taints):
            self.ledger.resized()
        row, more = self.nodes.upsert(node)
        self.classes.widen()
        for record in self.pods.on(row):
            if record.nomination is not None:
                self.pods.mark_changed(record)  # the node may not take it any more
        self._changes.freed += more
        for record in self._by_node.node_added(node.name):
            self.ledger.book(record)
            self.pods.mark_changed(record)

    def _node_removed(self, name: str) -> None:
        """Takes a node away. Its pods stay known and settle again should the node come back."""
        row = self.nodes.row(name)
        if row == NO_ROW:
            return
        for record in self._by_node.node_removed(name, row):
            self.ledger.book(record)
            self.pods.mark_changed(record)
        self.nodes.remove(name)
        self._changes.version += 1
        self.ledger.resized()
        self._changes.freed += 1  # an overfull node no longer weighs on the sums
