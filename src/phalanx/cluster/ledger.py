"""The ledger: charges of pods to queues and quotas, updated in O(change) and recomputable from the pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from phalanx.cluster.account_paths import Paths
from phalanx.cluster.accounts import (
    WITHOUT_CLAIM,
    AccountRecord,
    ChargeKey,
    ChargePath,
    ChargeState,
    ResourceSums,
)
from phalanx.cluster.pods.records import NO_NODE, GangRecord, PodRecord
from phalanx.model.account import DEFAULT_QUEUE, Account, AccountKey
from phalanx.model.events import AccountRemoved, AccountUpdated, NamespaceQuotasGranted, NamespaceWeighed
from phalanx.model.pod import CAN_LEAVE, MemberState

_CHARGE_STATES: dict[MemberState, ChargeState] = {
    MemberState.PENDING: ChargeState.PENDING,
    MemberState.ASSUMED: ChargeState.ALLOCATED,
    MemberState.BOUND: ChargeState.ALLOCATED,
    MemberState.RUNNING: ChargeState.RUNNING,
}
_WAITING = (*WITHOUT_CLAIM, ChargeState.NOMINATED)
# By the state's number, since hashing an enum is slow.
_ON_NODES = (*CAN_LEAVE, MemberState.TERMINATING)
_CHARGE_STATE_OF = tuple(_CHARGE_STATES.get(state) for state in MemberState)


class Ledger:
    """Trees of queues and quotas; a pod is charged to each of them on its paths.

    Changes are recorded per charge path and applied to the paths when sums are read (`refresh_sums`), so a thousand
    pods of one charge path cost one addition per account. `rebuilds` counts rebuilds of the declared accounts.
    `shape_version` counts changes of accounts, weights and cluster size, `demand_version` these and changes of the
    requested or used sums: everything that can change a share. `relief` counts the changes after which a unit that
    its accounts blocked can be admitted.
    """

    def __init__(self, schedulers: frozenset[str], offered: Callable[[], Mapping[str, int]]) -> None:
        """Create an empty ledger. `offered` returns the present allocatable resources of all nodes."""
        self._schedulers = schedulers
        self._offered = offered
        self._paths = Paths()
        self._charge_paths: dict[ChargeKey, ChargePath] = {}
        self._dirty: dict[ChargeKey, ChargePath] = {}
        self._stale = False
        # Collected from the first call of `take_moved` on; None: any account can have changed.
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
        """Whether any queue places its gangs strictly in order (`fifo`)."""
        self.refresh()
        return self._paths.keeps_order

    @property
    def budgeted(self) -> bool:
        """Whether any queue or quota has a budget."""
        self.refresh()
        return self._paths.budgeted

    @property
    def charge_paths(self) -> Iterable[ChargePath]:
        return self._charge_paths.values()

    def charged_queues(self) -> set[AccountKey]:
        """Return the queues that pods are charged to directly; mostly those without children."""
        paths = self._charge_paths.values()
        return {path.queue.key for path in paths if path.queue is not None}

    def spec_of(self, key: AccountKey) -> Account | None:
        """Return the newest declaration of a queue or quota."""
        return self._paths.spec_of(key)

    # Events

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
        """Record that the allocatable resources of the cluster have changed."""
        # The cluster's size affects which guarantees fit.
        self._stale = self._stale or self._paths.guarantees
        self.shape_version += 1
        self.demand_version += 1
        self.relief += 1

    # pods

    def enter(self, record: PodRecord) -> None:
        """Add a pod to the ledger, or move it to another charge path after a relevant change."""
        key = self._key(record)
        charge_path = record.charge_path
        if charge_path is None or charge_path.key != key:
            self.leave(record)
            record.charge_path = charge_path = self.charge_path(key)
            charge_path.pods += 1
        self.book(record)

    def book(self, record: PodRecord) -> None:
        """Charge a pod to its queue and quotas according to its state."""
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
        """Change the charge of a pod that has just been placed from pending to allocated: the common case, with a
        short path."""
        charge_path.move(record.footprint, ChargeState.PENDING, -1)
        charge_path.move(record.footprint, ChargeState.ALLOCATED, 1)
        record.charge_state = ChargeState.ALLOCATED
        if record.gang is not None:
            record.gang.count_allocated(record.footprint, 1)
        self._dirty[charge_path.key] = charge_path

    def place_all(self, records: Collection[PodRecord], gang: GangRecord | None) -> None:
        """Charge members of one gang, or pods without a gang, that have just been placed; a fast `book` for
        many."""
        pending, allocated = ChargeState.PENDING, ChargeState.ALLOCATED
        placed = [
            record
            for record in records
            if record.charge_state is pending and record.footprint is record.charged_footprint
        ]
        for record in placed:
            record.charge_state = allocated
        for record in records if len(placed) < len(records) else ():
            self.book(record)  # without effect for charged pods
        charges = [(record.charge_path, record.footprint) for record in placed]
        for charge_path, footprint in dict.fromkeys(charges):
            assert charge_path is not None
            number = charges.count((charge_path, footprint))
            charge_path.move(footprint, ChargeState.PENDING, -number)
            charge_path.move(footprint, ChargeState.ALLOCATED, number)
            if gang is not None:
                gang.count_allocated(footprint, number)
            self._dirty[charge_path.key] = charge_path

    def leave(self, record: PodRecord) -> None:
        """Remove a pod from the ledger; must be called before the pod is removed from its gang."""
        charge_path = record.charge_path
        if charge_path is None:
            return
        self._unbook(record, None)
        charge_path.pods -= 1
        record.charge_path = None
        self._dirty[charge_path.key] = charge_path

    def _unbook(self, record: PodRecord, successor: ChargeState | None) -> None:
        """Remove a pod's charge; the demand is unchanged if the pod only moves from pending to allocated."""
        charge_state, footprint, charge_path = record.charge_state, record.charged_footprint, record.charge_path
        same = charge_state is not None and successor is not None and footprint is record.footprint
        # No share counts what cannot be placed, so it is new demand once it can be.
        same = same and ChargeState.UNPLACEABLE not in (charge_state, successor)
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
        path = self._charge_paths.get(key)
        if path is None:
            path = self._charge_paths[key] = ChargePath(key)
            if key.user and not self._paths.users:
                self._paths.users = True
                self._changed()
            self._paths.attach(path)
            # Without pods, it is removed with the next refresh of the sums.
            self._dirty[key] = path
        return path

    def present_path(self, charge_path: ChargePath) -> ChargePath:
        """Return the present charge path with the same key: the ledger removes paths with their last pods, and the
        accounts of removed ones have former declarations."""
        known = self._charge_paths.get(charge_path.key)
        return charge_path if known is charge_path else self.charge_path(charge_path.key)

    def charge_path_of_group(self, namespace: str, queue: str) -> ChargePath:
        """Return the charge path of a gang that has no pods yet."""
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
            return None  # on an unknown node: it uses no resources of this cluster
        if record.state is MemberState.TERMINATING:
            return ChargeState.RELEASING if record.pod.node else None
        if record.state is MemberState.PENDING:
            if record.nomination is not None:
                return ChargeState.NOMINATED
            if record.pod.problem:
                return None
            return ChargeState.UNPLACEABLE if record.unplaceable else ChargeState.PENDING
        return _CHARGE_STATE_OF[record.state]

    # Sums

    def refresh(self) -> None:
        """Update all charge paths and their faults, but not the sums."""
        if self._stale:
            self._rebuild()

    def refresh_sums(self) -> None:
        """Update the sums of all queues and quotas."""
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
        """Return the queues and quotas with changed sums since the last call, removed ones included; None if any
        can have changed."""
        self.refresh_sums()
        moved, self._moved = self._moved, {}
        return moved

    def forget_moved(self) -> None:
        """Stop collecting queues and quotas with changed sums until the next call of `take_moved`, which returns
        None."""
        self._moved = None

    def _changed(self) -> None:
        self._stale = True
        self.resized()

    def _rebuild(self) -> None:
        """Rebuild all charge paths and sums: the declared queues and quotas change rarely."""
        for charge_path in self._charge_paths.values():
            charge_path.flush()
        self._paths.rebuild(self._charge_paths.values(), self._offered())
        for charge_path in self._charge_paths.values():
            for account in charge_path.path:
                account.merge(charge_path, with_pending=charge_path.fault is None)
        self._stale = False
        self.rebuilds += 1
        self._moved = None

    def discrepancies(self, pods: Iterable[PodRecord]) -> Iterator[str]:
        """Yield a message for each queue or quota with sums that differ from a recount of all pods."""
        self.refresh_sums()
        expected: dict[AccountKey, ResourceSums] = {key: ResourceSums() for key in self.accounts}
        for record in pods:
            charge_path, charge_state = record.charge_path, self._charge_state(record)
            if charge_path is None or charge_path.key != self._key(record):
                yield f"pod {record.pod.key} is charged to {charge_path} instead of {self._key(record)}"
            elif charge_state is not None and not (charge_state in WITHOUT_CLAIM and charge_path.fault is not None):
                for account in charge_path.path:
                    expected[account.key].add(charge_state, record.footprint.amounts)
        for account in self.accounts.values():
            needed = ResourceSums()
            for child in account.children.values():
                needed.add(
                    ChargeState.PENDING, {name: child.idle_guarantee(name) for name in child.guaranteed_resources}
                )
            if needed.pending != account.reserved_for_children:
                reserved = account.reserved_for_children
                yield f"{account.key} reserves {reserved} for its children, but the recount is {needed.pending}"
        for key, sums in expected.items():
            if sums.as_tuple() != self.accounts[key].as_tuple():
                yield f"{key} has {self.accounts[key].as_tuple()}, but the sum over its pods is {sums.as_tuple()}"
