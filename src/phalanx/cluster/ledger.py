"""The ledger: who is charged for what, kept in O(change) and recomputable from the pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from phalanx.cluster.account_paths import Paths
from phalanx.cluster.accounts import AccountRecord, ChargeKey, ChargePath, ChargeState, ResourceSums
from phalanx.cluster.classes import Footprint
from phalanx.cluster.pods.records import NO_NODE, GangRecord, PodRecord
from phalanx.model.account import DEFAULT_QUEUE, AccountKey
from phalanx.model.events import AccountRemoved, AccountUpdated, NamespaceWeighed
from phalanx.model.pod import CAN_LEAVE, MemberState

_BUCKETS: dict[MemberState, ChargeState] = {
    MemberState.PENDING: ChargeState.PENDING,
    MemberState.ASSUMED: ChargeState.ALLOCATED,
    MemberState.BOUND: ChargeState.ALLOCATED,
    MemberState.RUNNING: ChargeState.RUNNING,
}
_WAITING = (ChargeState.PENDING, ChargeState.NOMINATED)
# By the state's number: an enum as a key is hashed slowly.
_ON_NODES = (*CAN_LEAVE, MemberState.TERMINATING)
_BUCKET_OF = tuple(_BUCKETS.get(state) for state in MemberState)


class Ledger:
    """A forest of accounts; a pod is charged to every account on its paths.

    Changes are noted per payer and carried up the paths when somebody reads (`settle`), so a thousand pods of one
    payer cost one addition per account. `rebuilds` counts how often the declared accounts were made anew,
    `shape_version` changes of accounts, weights and the cluster's size,
    `demand_version` those and changes of what is asked for or held in sum: all that may change anybody's share.
    `relief` counts the changes after which something that was refused for its accounts' sake may be allowed.
    """

    def __init__(self, schedulers: frozenset[str], offered: Callable[[], Mapping[str, int]]) -> None:
        """`offered` tells what all nodes offer now."""
        self._schedulers = schedulers
        self._offered = offered
        self._paths = Paths()
        self._payers: dict[ChargeKey, ChargePath] = {}
        self._dirty: dict[ChargeKey, ChargePath] = {}
        self._stale = False
        # Collected from the first time that somebody asks; None: any account may have changed.
        self._moved: dict[AccountKey, AccountRecord] | None = None
        self.rebuilds = 0
        self.shape_version = 0
        self.demand_version = 0
        self.relief = 0

    @property
    def accounts(self) -> dict[AccountKey, AccountRecord]:
        return self._paths.accounts

    @property
    def keeps_order(self) -> bool:
        """Whether any queue keeps its order (`fifo`)."""
        self.refresh()
        return self._paths.keeps_order

    @property
    def budgeted(self) -> bool:
        """Whether any account has a budget."""
        self.refresh()
        return self._paths.budgeted

    @property
    def charge_paths(self) -> Iterable[ChargePath]:
        return self._payers.values()

    def charged_queues(self) -> set[AccountKey]:
        """The queues that pods are charged to directly; mostly those without children."""
        return {payer.queue.key for payer in self._payers.values() if payer.queue is not None}

    # what the world says

    def learn(self, event: AccountUpdated | AccountRemoved | NamespaceWeighed) -> None:
        match event:
            case AccountUpdated(account):
                changed = self._paths.declare(account)
            case AccountRemoved(key):
                changed = self._paths.withdraw(key)
            case NamespaceWeighed(namespace, weight):
                changed = self._paths.weigh(namespace, weight)
        if changed:
            self._changed()

    def resized(self) -> None:
        """The cluster offers more or less than before."""
        # Guarantees may fit that did not, or the other way round.
        self._stale = self._stale or self._paths.guarantees
        self.shape_version += 1
        self.demand_version += 1
        self.relief += 1

    # pods

    def enter(self, record: PodRecord) -> None:
        """A pod is new, or what decides where it is charged may have changed."""
        key = self._key(record)
        payer = record.charge_path
        if payer is None or payer.key != key:
            self.leave(record)
            record.charge_path = payer = self.charge_path(key)
            payer.pods += 1
        self.book(record)

    def book(self, record: PodRecord) -> None:
        """Counts a pod as its state says."""
        payer = record.charge_path
        assert payer is not None
        bucket = self._bucket(record)
        if record.footprint is record.charged_footprint:
            if bucket is record.charge_state:
                return
            if bucket is ChargeState.ALLOCATED and record.charge_state is ChargeState.PENDING:
                self._place(record, payer)
                return
        self._unbook(record, bucket)
        if bucket is None:
            return
        payer.move(record.footprint, bucket, 1)
        record.charge_state, record.charged_footprint = bucket, record.footprint
        if bucket not in _WAITING and record.gang is not None:
            record.gang.count_allocated(record.footprint, 1)
        self._dirty[payer.key] = payer

    def _place(self, record: PodRecord, payer: ChargePath) -> None:
        """The common case, in short: what was asked for is held."""
        payer.move(record.footprint, ChargeState.PENDING, -1)
        payer.move(record.footprint, ChargeState.ALLOCATED, 1)
        record.charge_state = ChargeState.ALLOCATED
        if record.gang is not None:
            record.gang.count_allocated(record.footprint, 1)
        self._dirty[payer.key] = payer

    def place_all(self, records: Iterable[PodRecord], gang: GangRecord | None) -> None:
        """`book` for members of one gang, or for pods of none, that have just been placed."""
        placed, asked = Counter[tuple[ChargePath, Footprint]](), ChargeState.PENDING
        for record in records:
            footprint, payer = record.footprint, record.charge_path
            if payer is None or footprint is not record.charged_footprint or record.charge_state is not asked:
                self.book(record)
                continue
            record.charge_state = ChargeState.ALLOCATED
            placed[payer, footprint] += 1
        for (payer, footprint), number in placed.items():
            payer.move(footprint, ChargeState.PENDING, -number)
            payer.move(footprint, ChargeState.ALLOCATED, number)
            if gang is not None:
                gang.count_allocated(footprint, number)
            self._dirty[payer.key] = payer

    def leave(self, record: PodRecord) -> None:
        """A pod is gone; must be called before it leaves its gang."""
        payer = record.charge_path
        if payer is None:
            return
        self._unbook(record, None)
        payer.pods -= 1
        record.charge_path = None
        self._dirty[payer.key] = payer

    def _unbook(self, record: PodRecord, successor: ChargeState | None) -> None:
        """Takes a pod off; what it asks for or holds in sum stays the same if it only moves on to a node."""
        bucket, footprint, payer = record.charge_state, record.charged_footprint, record.charge_path
        same = bucket is not None and successor is not None and footprint is record.footprint
        if not same:
            self.demand_version += 1
        if bucket is None:
            return
        assert payer is not None
        assert footprint is not None
        if not same or successor is ChargeState.PENDING:
            self.relief += 1
        payer.move(footprint, bucket, -1)
        record.charge_state, record.charged_footprint = None, None
        if bucket not in _WAITING and record.gang is not None:
            record.gang.count_allocated(footprint, -1)
        self._dirty[payer.key] = payer

    def charge_path(self, key: ChargeKey) -> ChargePath:
        found = self._payers.get(key)
        if found is None:
            found = self._payers[key] = ChargePath(key)
            if key.user and not self._paths.users:
                self._paths.users = True
                self._changed()
            self._paths.attach(found)
            # Without pods it goes again when the books are next settled.
            self._dirty[key] = found
        return found

    def charge_path_of_group(self, namespace: str, queue: str) -> ChargePath:
        """Who will pay for the pods of a group that has none yet."""
        return self.charge_path(ChargeKey(namespace, queue))

    def _key(self, record: PodRecord) -> ChargeKey:
        pod, gang = record.pod, record.gang
        queue = ""
        if pod.scheduler in self._schedulers:
            queue = pod.queue
            if gang is not None:
                queue = gang.spec.queue if gang.spec is not None else DEFAULT_QUEUE
        return ChargeKey(pod.namespace, queue, pod.quota, pod.user, pod.firm)

    def _bucket(self, record: PodRecord) -> ChargeState | None:
        if record.row == NO_NODE and record.state in _ON_NODES:
            return None  # on a node that is not there: it takes nothing, and nothing away from others
        if record.state is MemberState.TERMINATING:
            return ChargeState.RELEASING if record.pod.node else None
        if record.state is MemberState.PENDING:
            if record.nomination is not None:
                return ChargeState.NOMINATED
            return ChargeState.PENDING if not record.pod.problem else None
        return _BUCKET_OF[record.state]

    # sums

    def refresh(self) -> None:
        """Brings every path and fault up to date, but not the sums."""
        if self._stale:
            self._rebuild()

    def settle(self) -> None:
        """Brings every sum up to date."""
        self.refresh()
        if not self._dirty:
            return
        for payer in self._dirty.values():
            payer.flush()
            if self._moved is not None:
                self._moved.update((account.key, account) for account in payer.path)
            if not payer.pods:
                del self._payers[payer.key]
                self._paths.detach(payer)
        self._dirty.clear()

    def take_moved(self) -> dict[AccountKey, AccountRecord] | None:
        """The accounts whose sums have changed since the last call, those that are gone included; None where any
        may have."""
        self.settle()
        moved, self._moved = self._moved, {}
        return moved

    def forget_moved(self) -> None:
        """Nobody is going to ask which accounts have changed; whoever does gets to know that any may have."""
        self._moved = None

    def _changed(self) -> None:
        self._stale = True
        self.resized()

    def _rebuild(self) -> None:
        """Finds every path again and adds everything up: accounts change rarely."""
        for payer in self._payers.values():
            payer.flush()
        self._paths.rebuild(self._payers.values(), self._offered())
        for payer in self._payers.values():
            for account in payer.path:
                account.merge(payer, asked=payer.fault is None)
        self._stale = False
        self.rebuilds += 1
        self._moved = None

    def discrepancies(self, pods: Iterable[PodRecord]) -> Iterator[str]:
        """Counts everything again from the pods; a sentence for every account whose sums differ."""
        self.settle()
        expected: dict[AccountKey, ResourceSums] = {key: ResourceSums() for key in self.accounts}
        for record in pods:
            payer, bucket = record.charge_path, self._bucket(record)
            if payer is None or payer.key != self._key(record):
                yield f"pod {record.pod.key} is charged to {payer} instead of {self._key(record)}"
            elif bucket is not None and not (bucket is ChargeState.PENDING and payer.fault is not None):
                for account in payer.path:
                    expected[account.key].add(bucket, record.footprint.amounts)
        for account in self.accounts.values():
            kept = ResourceSums()
            for child in account.children.values():
                kept.add(
                    ChargeState.PENDING, {name: child.idle_guarantee(name) for name in child.guaranteed_resources}
                )
            if kept.pending != account.reserved_for_children:
                held = account.reserved_for_children
                yield f"{account.key} keeps {held} for its children, and they need {kept.pending}"
        for key, sums in expected.items():
            if sums.as_tuple() != self.accounts[key].as_tuple():
                yield f"{key} has {self.accounts[key].as_tuple()}, its pods say {sums.as_tuple()}"
