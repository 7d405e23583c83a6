"""`ClusterState`: everything the scheduler knows, kept current by events in O(change)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from phalanx.cluster.classes import ClassRecord, ClassTable, Footprint
from phalanx.cluster.cluster_objects import ClusterObjects
from phalanx.cluster.inqueue import InqueueResources
from phalanx.cluster.ledger import Ledger
from phalanx.cluster.node_table import NO_ROW, NodeTable
from phalanx.cluster.pods.nominations import Nomination, UnreleasedPods
from phalanx.cluster.pods.observation import charging, claim_of, standing, state_of, yielding
from phalanx.cluster.pods.occupancy import PROMISED_ONLY, PodsByNode, book_stock, change_class, give_back, stock_up
from phalanx.cluster.pods.records import NO_NODE, GangRecord, PodRecord
from phalanx.cluster.pods.tolerations import TolerationCounts
from phalanx.cluster.pods.unknown_nodes import PodsOfUnknownNodes
from phalanx.cluster.pods.victim_index import VictimIndex, VictimTable
from phalanx.cluster.resource_space import ResourceSpace, exact_sums
from phalanx.cluster.transaction import Transaction, Transactions
from phalanx.model.events import (
    AccountRemoved,
    AccountUpdated,
    ClusterEvent,
    GangRemoved,
    GangUpdated,
    NamespaceLabelled,
    NamespaceWeighed,
    NodeRemoved,
    NodeUpdated,
    PodRemoved,
    PodUpdated,
    StockFact,
)
from phalanx.model.gang import Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.pod import CAN_LEAVE, MemberState, PlanMark, Pod


class ClusterState:
    """One cluster as a value: no globals, no IO, no clock.

    Events change it one by one (`apply`), plans through `transaction`, `place` and `admit`; `transactions` are
    those of the turn under way. What changed among gangs and lone pods is collected until it is taken
    (`take_touched`). `version` counts the changes after which what was said may no longer be true, `relief` those
    after which what did not fit may fit, `ripened` the pods that have arrived where we placed them. `leaving` are
    the terminating pods that still hold something, doomed ones included, `promised` those that have a claim.
    `budgets` are PodDisruptionBudgets by namespace and name, `topology` are the domains of the network.
    """

    def __init__(self, schedulers: Collection[str] = ("phalanx",)) -> None:
        self.schedulers = frozenset(schedulers)
        self.space = ResourceSpace()
        self.nodes = NodeTable(self.space)
        self.classes = ClassTable(self.space, self.nodes.allocators.values())
        self.pods: dict[str, PodRecord] = {}
        self.gangs: dict[GangKey, GangRecord] = {}
        self.lone: dict[str, PodRecord] = {}
        self.promises = InqueueResources(self.gangs)
        self.ledger = Ledger(self.schedulers, self.offered)
        self.surroundings = ClusterObjects(self.nodes, self.gangs)
        self.resource_quotas = self.surroundings.resource_quotas
        self.budgets = self.surroundings.budgets
        self.topology = self.surroundings.topology
        self.leaving: dict[str, PodRecord] = {}
        self.lingering = UnreleasedPods(self.leaving, [stock.lingers for stock in self.nodes.allocators.values()])
        self.promised: dict[str, PodRecord] = {}
        self.relief = 0
        self.ripened = 0
        self.version = 0
        self.tenancy = VictimIndex()
        self.tolerances = TolerationCounts(self.schedulers)
        self._tenants = PodsByNode(self.tenancy.moved)
        self._homeless = PodsOfUnknownNodes()
        self._touched_gangs: dict[GangKey, None] = {}
        self._touched_pods: dict[str, None] = {}
        self.transactions = Transactions(self.nodes)

    def apply(self, event: ClusterEvent) -> None:
        """Takes in one fact. Repeats and facts about unknown things are harmless."""
        match event:
            case PodUpdated(pod):
                self._pod_updated(pod)
            case PodRemoved(uid):
                self._pod_removed(uid)
            case NodeUpdated(node):
                self._node_updated(node)
            case NodeRemoved(name):
                self._node_removed(name)
            case GangUpdated(gang):
                self._gang_updated(gang)
            case GangRemoved(key):
                self._gang_removed(key)
            case AccountUpdated() | AccountRemoved() | NamespaceWeighed():
                self.version += 1
                self.ledger.learn(event)
            case NamespaceLabelled(namespace, labels):
                self._regroup(self.nodes.affinity.label(namespace, labels))
                self._ease()
            case StockFact(stock, fact):
                self.version += 1
                if self.nodes.allocators[stock].learn(fact):
                    self.relief += 1
            case _:
                if self.surroundings.learn(event):
                    self._ease()

    def transaction(self, charging: bool = True) -> Transaction:
        return self.transactions.begin(charging)

    def offered(self) -> dict[str, int]:
        """resource -> what all nodes offer."""
        return dict(zip(self.space.names, exact_sums(self.nodes.allocatable), strict=True))

    def eased(self) -> int:
        """Grows with every change after which something that was refused may be possible."""
        return self.relief + self.ledger.relief

    @property
    def openings(self) -> int:
        """Grows when pods have come for whose sake others may go where they could not."""
        return self._tenants.openings

    def _ease(self) -> None:
        self.version += 1
        self.relief += 1

    def take_touched(self) -> tuple[dict[GangKey, None], dict[str, None]]:
        """The gangs and lone pods that changed since the last call, oldest change first."""
        taken, self._touched_gangs, self._touched_pods = (self._touched_gangs, self._touched_pods), {}, {}
        return taken

    def forget(self, uid: str) -> None:
        """A binding failed for good: the pod is pending again and its room is free."""
        record = self.pods.get(uid)
        if record is None or record.state is not MemberState.ASSUMED:
            return
        self._vacate(record)
        record.assumed_node = ""
        self._set_state(record, MemberState.PENDING, None)
        if record.gang is not None:
            record.gang.failures += 1
            record.gang.cached = None

    def place(self, record: PodRecord, row: int, mark: PlanMark | None) -> None:
        """Counts a pod as placed on a row whose arrays a transaction has already charged.

        A claim of the pod is over; the transaction has lifted it.
        """
        record.footprint = record.pod_class.footprint
        if record.nomination is not None:
            self._drop_claim(record)
        self._tenants.move_in(record, row)
        record.assumed_node = self.nodes.names[row]
        self._set_state(record, MemberState.ASSUMED, mark)
        self.version += 1

    def claim(self, record: PodRecord, row: int, claim: Nomination) -> None:
        """Holds room on a row for a pending pod, on the node and in its accounts, until it is placed or the claim
        is taken back. A claim that it has is replaced."""
        assert record.state is MemberState.PENDING
        self.unclaim(record)
        record.nomination, record.nominated_node = claim, self.nodes.names[row]
        self.promised[record.pod.uid] = record
        self._tenants.move_in(record, row)
        self._charge(record, row, 1)
        self.ledger.book(record)

    def unclaim(self, record: PodRecord) -> bool:
        """Takes a claim back; whether there was one."""
        if record.nomination is None:
            return False
        self._vacate(record)
        record.nomination, record.nominated_node = None, ""
        del self.promised[record.pod.uid]
        self.ledger.book(record)
        return True

    def doom(self, record: PodRecord) -> None:
        """Counts a pod as terminating from now on: it is told to leave."""
        assert record.state in CAN_LEAVE
        record.evicting, self.version = True, self.version + 1
        self._retire(record)

    def spare(self, uid: str, until: float) -> None:
        """A pod that was doomed stays after all, and is not chosen again before `until`."""
        record = self.pods.get(uid)
        if record is None or not record.evicting:
            return
        record.evicting, record.no_eviction_until = False, until
        if record.pod.terminating or record.pod.finished:
            return
        self._tenants.retire(record, self.nodes, -1)
        self.leaving.pop(uid, None)
        self._ease()  # others may have counted on its room, and must ask again who goes instead
        self._set_state(record, state_of(record.pod, self.schedulers), record.mark)

    def admit(self, key: GangKey) -> None:
        """Counts a group as admitted from now on, until its own phase says so."""
        self.gangs[key].admitted = True
        self.version += 1  # what others who wait to be admitted were told is no longer true
        self._touch_gang(key)

    def forget_admission(self, key: GangKey) -> None:
        """The admission could not be written for good: the group waits again and its promise is free."""
        record = self.gangs.get(key)
        if record is not None and record.admitted:
            record.admitted = False
            self._touch_gang(key)
            self._ease()

    def tenants(self, row: int) -> Collection[PodRecord]:
        """The pods that occupy a row, placed and terminating ones included."""
        return self._tenants.of(row)

    def tenancy_table(self) -> VictimTable:
        """How many pods of which kind (`tenancy.kinds`) each row has."""
        return self.tenancy.table(self._tenants.rows)

    # pods

    def _pod_updated(self, pod: Pod) -> None:
        record = self.pods.get(pod.uid)
        if record is None:
            self._pod_added(pod, nominated=pod.nominated_node)
            return
        if record.pod == pod:
            return
        state, old = state_of(pod, self.schedulers), record.pod
        if record.evicting and state in CAN_LEAVE:
            state = MemberState.TERMINATING
        claim = record.nomination if state is MemberState.PENDING else None
        placed, target, mark = record.state is MemberState.ASSUMED, record.assumed_node, record.mark
        if (old.pod_class, old.usage, old.gang, old.role) == (pod.pod_class, pod.usage, pod.gang, pod.role):
            if placed and state is MemberState.PENDING:
                # An update from before our binding, or an unrelated one: the assumption stands.
                self._renoun(record, pod)
                return
            arrived = state in CAN_LEAVE and pod.node == target
            if placed and arrived and record.footprint is self._footprint(record.pod_class, pod):
                record.assumed_node = ""
                self._renoun(record, pod)
                self._set_state(record, state, pod.mark or mark)
                self.ripened += 1
                self.tenancy.moved.note(record.row)
                return
            if (
                not placed
                and old.mark == pod.mark
                and claim is record.nomination
                and claim_of(old, record.state) == claim_of(pod, state)
            ):
                self._renoun(record, pod)
                if record.state is not state:
                    self._set_state(record, state, mark)
                return
        doomed, spared, nominated, taken = (
            record.evicting,
            record.no_eviction_until,
            record.nominated_node,
            dict(record.allocated),
        )
        last, peak = record.gang, record.gang.peak if record.gang is not None else 0
        self._pod_removed(pod.uid)
        self._pod_added(pod)
        record = self.pods[pod.uid]
        record.no_eviction_until = spared
        if placed and state is MemberState.PENDING:
            # What it got of each stock is known to nobody but us yet.
            record.allocated = {
                stock.name: taken[stock.name] for stock in record.pod_class.allocators if stock.name in taken
            }
            self._assume(record, target, mark if old.gang == pod.gang else None)
        elif claim is not None:
            self._hold(record, claim, nominated)
        elif doomed and record.state in CAN_LEAVE:
            self.doom(record)
        if record.gang is not None and last is not None and record.gang.key == last.key:
            record.gang.resume(peak)

    def _assume(self, record: PodRecord, node: str, mark: PlanMark | None) -> None:
        """Keeps the assumption that a pod is on its way to a node although the pod itself has changed."""
        record.assumed_node = node
        self._set_state(record, MemberState.ASSUMED, mark)
        self._settle(record, node)

    def _hold(self, record: PodRecord, claim: Nomination, node: str) -> None:
        """Gives a pod a claim on a node that may not be known yet."""
        record.nomination, record.nominated_node = claim, node
        self.promised[record.pod.uid] = record
        self._settle(record, node)
        self.ledger.book(record)

    def _pod_added(self, pod: Pod, nominated: str = "") -> None:
        """`nominated` is where room was promised to a pending pod before we knew it (by us, in a former life)."""
        self._regroup(self.nodes.affinity.state(pod.pod_class.peers))
        cls = self._class_of(pod)
        record = PodRecord(pod, cls, self._footprint(cls, pod), state_of(pod, self.schedulers))
        self.nodes.widen()
        self.nodes.affinity.enter(pod)
        record.mark = pod.mark
        self.pods[pod.uid] = record
        self.tolerances.count(pod, 1)
        if pod.gang:
            self._gang(GangKey(pod.namespace, pod.gang)).add(record)
        elif record.state is MemberState.PENDING:
            self.lone[pod.uid] = record
        if record.state is MemberState.TERMINATING:
            self.leaving[pod.uid] = record
        self._occupy(record)
        self.ledger.enter(record)
        self._touch(record)
        if nominated and record.state is MemberState.PENDING:
            self._hold(record, Nomination(), nominated)

    def _pod_removed(self, uid: str) -> None:
        record = self.pods.pop(uid, None)
        if record is None:
            return
        self.tolerances.count(record.pod, -1)
        self._vacate(record)
        self.nodes.affinity.leave(record.pod)
        self._regroup(self.nodes.affinity.withdraw(record.pod.pod_class.peers))
        self.ledger.leave(record)
        self.lone.pop(uid, None)
        self.leaving.pop(uid, None)
        self.promised.pop(uid, None)
        self._touch(record)
        if record.gang is not None:
            gang = record.gang
            gang.remove(record)
            self._forget_gang_if_empty(gang)

    def _footprint(self, cls: ClassRecord, pod: Pod) -> Footprint:
        return self.classes.footprint(pod.usage, pod.pod_class) if pod.usage else cls.footprint

    def _class_of(self, pod: Pod) -> ClassRecord:
        company = self.nodes.affinity.company(pod.namespace, pod.labels, pod.pod_class.peers)
        return self.classes.record(pod.pod_class, company)

    def _regroup(self, uids: Iterable[str]) -> None:
        """Others mean these pods now, or no longer do."""
        for uid in uids:
            record = self.pods[uid]
            cls = self._class_of(record.pod)
            if cls is not record.pod_class:
                change_class(record, cls)
                if record.state is MemberState.PENDING:
                    self._touch(record)

    def _set_state(self, record: PodRecord, state: MemberState, mark: PlanMark | None) -> None:
        if record.gang is not None:
            record.gang.set_state(record, state, mark)
        else:
            record.state, record.mark = state, mark
            if state is MemberState.PENDING:
                self.lone[record.pod.uid] = record
            else:
                self.lone.pop(record.pod.uid, None)
        self.ledger.book(record)
        self._touch(record)

    def _retire(self, record: PodRecord) -> None:
        """Counts what a pod takes as room to come."""
        self._tenants.retire(record, self.nodes, 1)
        self.leaving[record.pod.uid] = record
        self._set_state(record, MemberState.TERMINATING, record.mark)

    def _renoun(self, record: PodRecord, pod: Pod) -> None:
        """Takes the newest noun of a pod whose place in the tables stays."""
        old = record.pod
        if standing(old) != standing(pod):
            self._touch(record)
        record.pod = pod
        if old.labels != pod.labels:
            self.nodes.affinity.leave(old)
            self.nodes.affinity.enter(pod)
            self._regroup((pod.uid,))
            self._ease()
        if charging(old) != charging(pod):
            self.ledger.enter(record)
        if record.row != NO_NODE:
            self.tenancy.moved.note(record.row)
            if yielding(old) != yielding(pod):
                self._ease()

    def _touch(self, record: PodRecord) -> None:
        if record.gang is not None:
            self._touch_gang(record.gang.key)
        else:
            self._touched_pods[record.pod.uid] = None

    def _touch_gang(self, key: GangKey) -> None:
        self._touched_gangs[key] = None
        self.surroundings.composites.changed(key)
        self.promises.changed(key)

    # occupation of nodes

    def _occupy(self, record: PodRecord) -> None:
        """Puts a pod's footprint on its node, or remembers that its node is not known yet."""
        if node := claim_of(record.pod, record.state)[0]:
            self._settle(record, node)

    def _settle(self, record: PodRecord, node: str) -> None:
        row = self.nodes.row(node)
        if row == NO_ROW:
            self._homeless.add(node, record)
            return
        self._tenants.move_in(record, row)
        self._charge(record, row, 1)

    def _charge(self, record: PodRecord, row: int, sign: int) -> None:
        """Puts a pod on a row's amounts, or takes it off, as its state says."""
        footprint = record.footprint
        self.version += 1
        if record.state in PROMISED_ONLY:
            self.nodes.reserve(row, footprint.usage, sign)
            return
        self.nodes.charge(row, footprint.usage, footprint.scored, sign)
        if sign > 0:
            stock_up(record, row)
        else:
            give_back(record, row)
        if record.state is MemberState.TERMINATING:
            self.nodes.release_later(row, footprint.usage, sign)

    def _vacate(self, record: PodRecord) -> None:
        if record.row == NO_NODE:
            self._homeless.discard(record)
            return
        row = record.row
        self._tenants.move_out(record)
        self._charge(record, row, -1)
        self.relief += 1

    def _drop_claim(self, record: PodRecord) -> None:
        """Forgets a claim whose room a transaction has already taken off the arrays."""
        if record.row != NO_NODE:
            self._tenants.move_out(record)
        else:
            self._homeless.discard(record)
        record.nomination, record.nominated_node = None, ""
        del self.promised[record.pod.uid]

    # nodes

    def _node_updated(self, node: Node) -> None:
        row = self.nodes.row(node.name)
        if row != NO_ROW and self.nodes.nodes[row] == node:
            return
        self.version += 1
        known = self.nodes.nodes[row] if row != NO_ROW else None
        if known is None or (known.allocatable, known.taints) != (node.allocatable, node.taints):
            self.ledger.resized()
        row, more = self.nodes.upsert(node)
        self.classes.widen()
        for record in self.tenants(row):
            if record.nomination is not None:
                self._touch(record)  # the node may not take it any more
        self.relief += more
        for record in self._homeless.take(node.name):
            self._settle(record, node.name)
            self.ledger.book(record)
            self._touch(record)

    def _node_removed(self, name: str) -> None:
        """Takes a node away. Its pods stay known and settle again should the node come back."""
        row = self.nodes.row(name)
        if row == NO_ROW:
            return
        for record in list(self.tenants(row)):
            book_stock(record, row, -1)
            self._tenants.move_out(record)
            self._homeless.add(name, record)
            self.ledger.book(record)
            self._touch(record)
        self.nodes.remove(name)
        self.version += 1
        self.ledger.resized()
        self.relief += 1  # an overfull node no longer weighs on the sums

    # gangs

    def _gang_updated(self, gang: Gang) -> None:
        record = self._gang(gang.key)
        old, record.spec = record.spec, gang
        if old == gang:
            return
        if gang.admitted or old is None or old.uid != gang.uid:
            record.admitted = False
        if old is not None and old.uid and gang.uid and old.uid != gang.uid:
            record.redeclare()
        if old is None or old.queue != gang.queue:
            self._recharge(record)
        self._touch_gang(gang.key)
        if gang.admission:
            self.version += 1
        if (old is not None and old.admission) or record.counts().active:
            self._ease()  # what it was promised may be free for others, or its members may have to go

    def _gang_removed(self, key: GangKey) -> None:
        record = self.gangs.get(key)
        if record is None or record.spec is None:
            return
        self._touch_gang(key)
        if record.spec.admission or record.counts().active:
            self._ease()
        record.spec, record.admitted = None, False
        self._recharge(record)
        self._forget_gang_if_empty(record)

    def _recharge(self, record: GangRecord) -> None:
        """The gang may stand in another queue now."""
        for member in record.members.values():
            self.ledger.enter(member)
            if member.row != NO_NODE:
                self.tenancy.moved.note(member.row)

    def _gang(self, key: GangKey) -> GangRecord:
        record = self.gangs.get(key)
        if record is None:
            record = self.gangs[key] = GangRecord(key)
        return record

    def _forget_gang_if_empty(self, record: GangRecord) -> None:
        if record.spec is None and not record.members:
            self.gangs.pop(record.key, None)
