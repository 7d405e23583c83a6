"""The ledger: who is charged for what, kept in O(change) and recomputable from the pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from phalanx.cluster.account_paths import Paths
from phalanx.cluster.accounts import AccountRecord, ChargeKey, ChargePath, ChargeState, ResourceSums
from phalanx.cluster.classes import Footprint
from phalanx.cluster.pods.records import NO_NODE, GangRecord, PodRecord
from phalanx.model.account import DEFAULT_QUEUE, AccountKey
from phalanx.model.events import AccountRemoved, AccountUpdated, NamespaceQuotasGranted, NamespaceWeighed
from phalanx.model.pod import CAN_LEAVE, MemberState

_CHARGE_STATES: dict[MemberState, ChargeState] = {
    MemberState.PENDING: ChargeState.PENDING,
    MemberState.ASSUMED: ChargeState.ALLOCATED,
    MemberState.BOUND: ChargeState.ALLOCATED,
    MemberState.RUNNING: ChargeState.RUNNING,
}
_WAITING = (ChargeState.PENDING, ChargeState.NOMINATED)
# By the state's number: an enum as a key is hashed slowly.
_ON_NODES = (*CAN_LEAVE, MemberState.TERMINATING)
_CHARGE_STATE_OF = tuple(_CHARGE_STATES.get(state) for state in MemberState)


class Ledger:
    """A forest of accounts; a pod is charged to every account on its paths.

    Changes are noted per charge path and carried up the paths when somebody reads (`refresh_sums`), so a thousand
    pods of one charge path cost one addition per account. `rebuilds` counts how often the declared accounts were
    made anew, `shape_version` changes of accounts, weights and the cluster's size, `demand_version` those and
    changes of what is asked for or held in sum: all that may change anybody's share. `relief` counts the changes
    after which something that was refused for its accounts' sake may be allowed.
    """

    def __init__(self, schedulers: frozenset[str], offered: Callable[[], Mapping[str, int]]) -> None:
        """`offered` tells what all nodes offer now."""
        self._schedulers = schedulers
        self._offered = offered
        self._paths = Paths()
        self._charge_paths: dict[ChargeKey, ChargePath] = {}
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
        return self._charge_paths.values()

    def charged_queues(self) -> set[AccountKey]:
        """The queues that pods are charged to directly; mostly those without children."""
        paths = self._charge_paths.values()
        return {path.queue.key for path in paths if path.queue is not None}

    # what the world says

    def learn(self, event: AccountUpdated | AccountRemoved | NamespaceWeighed | NamespaceQuotasGranted) -> None:
        match event:
            case AccountUpdated(account):
                changed = self._paths.declare(account)
            case AccountRemoved(key):
                changed = self._paths.withdraw(key)
            case NamespaceWeighed(namespace, weight):
                changed = self._paths.weigh(namespace, weight)
            case NamespaceQuotasGranted(namespace, quotas):
                changed = self._paths.grant(namespace, quotas)
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
        charge_path = record.charge_path
        if charge_path is None or charge_path.key != key:
            self.leave(record)
            record.charge_path = charge_path = self.charge_path(key)
            charge_path.pods += 1
        self.book(record)

    def book(self, record: PodRecord) -> None:
        """Counts a pod as its state says."""
        charge_path = record.charge_path
        assert charge_path is not None
        charge_state = self._charge_state(record)
        if record.footprint is record.charged_footprint:
            if charge_state is record.charge_state:
                return
            if charge_state is ChargeState.ALLOCATED and record.charge_state is ChargeState.PENDING:
                self._place(record, charge_path)
                return
        self._unbook(record, charge_state)
        if charge_state is None:
            return
        charge_path.move(record.footprint, charge_state, 1)
        record.charge_state, record.charged_footprint = charge_state, record.footprint
        if charge_state not in _WAITING and record.gang is not None:
            record.gang.count_allocated(record.footprint, 1)
        self._dirty[charge_path.key] = charge_path

    def _place(self, record: PodRecord, charge_path: ChargePath) -> None:
        """The common case, in short: what was asked for is held."""
        charge_path.move(record.footprint, ChargeState.PENDING, -1)
        charge_path.move(record.footprint, ChargeState.ALLOCATED, 1)
        record.charge_state = ChargeState.ALLOCATED
        if record.gang is not None:
            record.gang.count_allocated(record.footprint, 1)
        self._dirty[charge_path.key] = charge_path

    def place_all(self, records: Iterable[PodRecord], gang: GangRecord | None) -> None:
        """`book` for members of one gang, or for pods of none, that have just been placed."""
        placed, asked = Counter[tuple[ChargePath, Footprint]](), ChargeState.PENDING
        for record in records:
            footprint, charge_path = record.footprint, record.charge_path
            if charge_path is None or footprint is not record.charged_footprint or record.charge_state is not asked:
                self.book(record)
                continue
            record.charge_state = ChargeState.ALLOCATED
            placed[charge_path, footprint] += 1
        for (charge_path, footprint), number in placed.items():
            charge_path.move(footprint, ChargeState.PENDING, -number)
            charge_path.move(footprint, ChargeState.ALLOCATED, number)
            if gang is not None:
                gang.count_allocated(footprint, number)
            self._dirty[charge_path.key] = charge_path

    def leave(self, record: PodRecord) -> None:
        """A pod is gone; must be called before it leaves its gang."""
        charge_path = record.charge_path
        if charge_path is None:
            return
        self._unbook(record, None)
        charge_path.pods -= 1
        record.charge_path = None
        self._dirty[charge_path.key] = charge_path

    def _unbook(self, record: PodRecord, successor: ChargeState | None) -> None:
        """Takes a pod off; what it asks for or holds in sum stays the same if it only moves on to a node."""
        charge_state, footprint, charge_path = record.charge_state, record.charged_footprint, record.charge_path
        same = charge_state is not None and successor is not None and footprint is record.footprint
        if not same:
            self.demand_version += 1
        if charge_state is None:
            return
        assert charge_path is not None
        assert footprint is not None
        if not same or successor is ChargeState.PENDING:
            self.relief += 1
        charge_path.move(footprint, charge_state, -1)
        record.charge_state, record.charged_footprint = None, None
        if charge_state not in _WAITING and record.gang is not None:
            record.gang.count_allocated(footprint, -1)
        self._dirty[charge_path.key] = charge_path

    def charge_path(self, key: ChargeKey) -> ChargePath:
        found = self._charge_paths.get(key)
        if found is None:
            found = self._charge_paths[key] = ChargePath(key)
            if key.user and not self._paths.users:
                self._paths.users = True
                self._changed()
            self._paths.attach(found)
            # Without pods it goes again when the books are next settled.
            self._dirty[key] = found
        return found

    def charge_path_of_group(self, namespace: str, queue: str) -> ChargePath:
        """The charge path of the pods of a group that has none yet."""
        return self.charge_path(ChargeKey(namespace, queue))

    def _key(self, record: PodRecord) -> ChargeKey:
        pod, gang = record.pod, record.gang
        queue = ""
        if pod.scheduler in self._schedulers:
            queue = pod.queue
            if gang is not None:
                queue = gang.spec.queue if gang.spec is not None else DEFAULT_QUEUE
        return ChargeKey(pod.namespace, queue, pod.quota, pod.user, pod.firm)

    def _charge_state(self, record: PodRecord) -> ChargeState | None:
        if record.row == NO_NODE and record.state in _ON_NODES:
            return None  # on a node that is not there: it takes nothing, and nothing away from others
        if record.state is MemberState.TERMINATING:
            return ChargeState.RELEASING if record.pod.node else None
        if record.state is MemberState.PENDING:
            if record.nomination is not None:
                return ChargeState.NOMINATED
            return ChargeState.PENDING if not record.pod.problem else None
        return _CHARGE_STATE_OF[record.state]

    # sums

    def refresh(self) -> None:
        """Brings every path and fault up to date, but not the sums."""
        if self._stale:
            self._rebuild()

    def refresh_sums(self) -> None:
        """Brings every sum up to date."""
        self.refresh()
        if not self._dirty:
            return
        for charge_path in self._dirty.values():
            charge_path.flush()
            if self._moved is not None:
                self._moved.update((account.key, account) for account in charge_path.path)
            if not charge_path.pods:
                del self._charge_paths[charge_path.key]
                self._paths.detach(charge_path)
        self._dirty.clear()

    def take_moved(self) -> dict[AccountKey, AccountRecord] | None:
        """The accounts whose sums have changed since the last call, those that are gone included; None where any
        may have."""
        self.refresh_sums()
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
        for charge_path in self._charge_paths.values():
            charge_path.flush()
        self._paths.rebuild(self._charge_paths.values(), self._offered())
        for charge_path in self._charge_paths.values():
            for account in charge_path.path:
                account.merge(charge_path, asked=charge_path.fault is None)
        self._stale = False
        self.rebuilds += 1
        self._moved = None

    def discrepancies(self, pods: Iterable[PodRecord]) -> Iterator[str]:
        """Counts everything again from the pods; a sentence for every account whose sums differ."""
        self.refresh_sums()
        expected: dict[AccountKey, ResourceSums] = {key: ResourceSums() for key in self.accounts}
        for record in pods:
            charge_path, charge_state = record.charge_path, self._charge_state(record)
            if charge_path is None or charge_path.key != self._key(record):
                yield f"pod {record.pod.key} is charged to {charge_path} instead of {self._key(record)}"
            elif charge_state is not None and not (
                charge_state is ChargeState.PENDING and charge_path.fault is not None
            ):
                for account in charge_path.path:
                    expected[account.key].add(charge_state, record.footprint.amounts)
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
