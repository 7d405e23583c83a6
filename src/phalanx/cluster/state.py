"""`ClusterState`: all data of the scheduler, updated by events in O(change)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

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
from phalanx.model.account import AccountKey
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
    NodeBackoffsRestored,
    NodeRemoved,
    NodeUpdated,
    PodRejected,
    PodRemoved,
    PodUpdated,
    ProvisioningFailed,
)
from phalanx.model.gang import GangKey
from phalanx.model.node import Node
from phalanx.model.pod import MemberState


class ClusterState:
    """One cluster as a value: without globals, I/O or clock.

    Events change it one by one (`apply`); plans change it through `transaction` and the decisions of `pods` and
    `gangs`. `transactions` are those of the current cycle. `objects` are neither pods, nodes nor gangs; among
    these, `budgets` are PodDisruptionBudgets by namespace and name, and `topology` are the network domains.
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
        """Apply one event of the intake. Repeated events and events about unknown objects are harmless."""
        if type(event) is PodUpdated:  # by far the most frequent
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
                if isinstance(event, AccountUpdated) and event.account.fifo:
                    self._begin_order(event.account.key)
                self.ledger.learn(event)
            case NamespaceLabelled(namespace, labels):
                self.pods.reclassify(self.nodes.affinity.label(namespace, labels))
                self._changes.may_fit()
            case PodRejected() | ProvisioningFailed() | NodeBackoffsRestored():
                self._node_backed_off(event)
            case AllocatorFact(allocator, fact):
                self._changes.version += 1
                if self.nodes.allocators[allocator].learn(fact):
                    self._changes.freed += 1
            case _:
                if self.objects.learn(event):
                    self._changes.may_fit()

    def _begin_order(self, queue: AccountKey) -> None:
        """Let all that waits in a queue have a turn if it keeps its order from now on: the first one blocks it."""
        spec = self.ledger.spec_of(queue)
        if spec is None or spec.fifo:
            return
        for record in self.pods.values():
            path = record.charge_path
            if record.state is MemberState.PENDING and path is not None and path.key.queue == queue.name:
                self.pods.mark_changed(record)
        for gang in self.gangs.values():
            if gang.spec is not None and not gang.members and gang.spec.queue == queue.name:
                self.gangs.mark_changed(gang.key)

    def transaction(self, charging: bool = True) -> Transaction:
        return self.transactions.begin(charging)

    def room_opened(self) -> None:
        """Record that reserved resources were released, so that a gang or pod that did not fit can fit now."""
        self._changes.may_fit()

    def recheck_nominations(self, rows: Iterable[int]) -> None:
        """Let the pods that are nominated for the nodes of these rows have a turn: the nodes can be closed to them
        now."""
        nominated = self.pods.nominated
        for row in rows if nominated else ():
            for record in self.pods.on(row):
                if record.nomination is not None:
                    self.pods.mark_changed(record)

    def offered(self) -> dict[str, int]:
        """Return the allocatable resources of all nodes, by resource."""
        return dict(zip(self.space.names, exact_sums(self.nodes.allocatable), strict=True))

    def victim_table(self) -> VictimTable:
        """Return the number of pods of each victim class (`victims.kinds`) on each row."""
        return self._by_node.victim_table()

    @property
    def has_changed(self) -> bool:
        """Whether gangs, their trees or standalone pods have changed since the last `pop_changed`."""
        changes = self._changes
        return bool(changes.gangs or changes.pods or self.gangs.composites.touched)

    def pop_changed(self) -> tuple[dict[GangKey, None], dict[str, None]]:
        """Return the gangs and standalone pods that changed since the last call, oldest change first."""
        return self._changes.pop()

    @property
    def version(self) -> int:
        """Incremented with every change that can outdate a verdict."""
        return self._changes.version

    @property
    def capacity_version(self) -> int:
        """Capacity version: incremented with every change after which a rejected gang or pod can fit."""
        return self._changes.freed + self.ledger.relief

    @property
    def bound_version(self) -> int:
        """Number of our bindings that the API has confirmed."""
        return self._changes.bound

    @property
    def affinity_version(self) -> int:
        """Incremented when pods arrive that can open nodes for other pods by affinity."""
        return self._by_node.affinity_version

    @property
    def leaving_version(self) -> int:
        """Number of pods that began to terminate: victims of a search for others can free the rest of the room."""
        return self._by_node.leaving_version

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
        self.recheck_nominations([row])
        self._changes.freed += more
        for record in self._by_node.node_added(node.name):
            self.ledger.book(record)
            self.pods.mark_changed(record)

    def _node_backed_off(self, event: PodRejected | ProvisioningFailed | NodeBackoffsRestored) -> None:
        """Update the back-off of nodes. Pods of a namespace with rejections have classes of their own."""
        backoff = self.nodes.backoff
        last, version = backoff.namespaces(), backoff.version
        match event:
            case PodRejected(node, reason, namespace, pod_class, at):
                backoff.reject(node, reason, namespace, pod_class, at)
            case ProvisioningFailed(node, namespace, storage_class, size, at):
                backoff.fail_provisioning(node, namespace, storage_class, size, at)
            case NodeBackoffsRestored(entries):
                backoff.restore(entries)
        if changed := last ^ backoff.namespaces():
            self.pods.separate_namespaces(changed, backoff.namespaces())
        self._changes.version += backoff.version > version

    def _node_removed(self, name: str) -> None:
        """Remove a node. Its pods remain known, and are charged again if the node returns."""
        row = self.nodes.row(name)
        if row == NO_ROW:
            return
        for record in self._by_node.node_removed(name, row):
            self.ledger.book(record)
            self.pods.mark_changed(record)
        self.nodes.remove(name)
        self._changes.version += 1
        self.ledger.resized()
        self._changes.freed += 1  # an overfull node no longer reduces the sums
