"""Queue tree as plugins see it: counted queues, real capabilities, and room to admit groups."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

import numpy as np

from phalanx.cluster.account_paths import ROOT
from phalanx.cluster.accounts import AccountRecord, add_amounts
from phalanx.cluster.ledger import Ledger
from phalanx.cluster.nodes.eligibility import objections
from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.resource_space import exact_sums
from phalanx.cluster.state import ClusterState
from phalanx.model.account import AccountKey, Tree
from phalanx.model.node import HOLD
from phalanx.model.text.quantity import format_quantity
from phalanx.scheduling.quota.limits import UNLIMITED
from phalanx.scheduling.quota.water_filling import real_capability

T = TypeVar("T")
Amounts = Mapping[str, int]
QUEUE_CLOSED = "QueueClosed"
_NOTHING: Amounts = {}


class AccountSums(Protocol):
    """Queues and quotas at one moment: the ledger, or a copy of it."""

    @property
    def accounts(self) -> dict[AccountKey, AccountRecord]: ...

    def charged_queues(self) -> set[AccountKey]:
        """Return the queues that pods are charged to directly, usually those without children."""


class ShareView(Protocol):
    """Queues and quotas with the amounts that they share."""

    @property
    def ledger(self) -> AccountSums:
        """The current queues and quotas."""

    def memo(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the cached result of `compute`; requests, usage and the cluster's size have not changed since."""

    def offered(self) -> Amounts:
        """Return the shared amounts by resource: the larger of the nodes' allocatable and used amounts."""


class QueueSession(ShareView, Protocol):
    """Session of the cycle that is being planned."""

    state: ClusterState

    @property
    def ledger(self) -> Ledger:
        """The current queues and quotas."""

    def reclaimable_estimate(self, gang: GangRecord, account: AccountRecord | None = None) -> Mapping[str, int]:
        """Return the amounts by resource that a gang could reclaim from other pods (in one queue, or in all)."""


def takes_part(queue: AccountRecord) -> bool:
    """Return whether a queue counts in the computation of shares: a broken one does not, a closed one while it has
    usage."""
    fault = queue.fault
    return fault is None or (fault.code == QUEUE_CLOSED and bool(queue.used))


def requested(account: AccountRecord, less: Iterable[AccountRecord] = ()) -> dict[str, int]:
    """Return the usage and requests of a queue's pods, without those of the `less` queues."""
    amounts = dict(account.used)
    for name, amount in account.pending.items():
        amounts[name] = amounts.get(name, 0) + amount
    for child in less:
        for sums in (child.used, child.pending):
            for name, amount in sums.items():
                amounts[name] -= amount
    return {name: amount for name, amount in amounts.items() if amount > 0}


def guarantee(queue: AccountRecord) -> Amounts:
    return queue.guarantee


def capability(queue: AccountRecord) -> Amounts:
    return queue.capability


def guaranteed(queues: Iterable[AccountRecord]) -> dict[str, int]:
    """Return the sum of the guarantees of those queues that take part in the computation of shares."""
    sums: dict[str, int] = {}
    for queue in queues:
        if queue.guarantee and takes_part(queue):
            for name, amount in queue.guarantee.items():
                sums[name] = sums.get(name, 0) + amount
    return sums


def offered(state: ClusterState) -> dict[str, int]:
    """Return the shared amounts by resource: the larger of the nodes' allocatable and used amounts."""
    sums = exact_sums(np.maximum(state.nodes.allocatable, state.nodes.used))
    return dict(zip(state.space.names, sums, strict=True))


def usable(state: ClusterState) -> dict[str, int]:
    """Return the shared amounts without nodes with taints that no pod tolerates, and without usage outside all
    queues."""
    state.ledger.refresh_sums()
    nodes, tolerances = state.nodes, list(state.pods.tolerations)
    # The hold taint of a relocation is temporary: deserved shares include such nodes.
    lasting = [tuple(taint for taint in taints if taint != HOLD) for taints in nodes.taints.sets]
    open_to = [not taints or any(not objections(each, taints) for each in tolerances) for taints in lasting]
    rows = np.array(open_to, dtype=np.bool_)[nodes.taints.ids]
    # What is nominated counts as if it were there: while it is placed it is.
    ours = state.ledger.accounts[ROOT].used
    what = np.maximum(nodes.allocatable, nodes.used)[:, rows], nodes.used[:, rows]
    found = zip(state.space.names, *map(exact_sums, what), strict=True)
    return {name: amount - max(0, used - ours.get(name, 0)) for name, amount, used in found}


class RealCapabilities:
    """Largest amounts that each queue can use while its siblings' guarantees hold, by resource of the cluster.

    It is min(capability, parent's amount - sum of the siblings' guarantees + own guarantee); the root's amount is
    the cluster.

    Source: Volcano, plugins/capacity/capacity.go checkHierarchicalQueue (there the root is infinite) and
    plugins/proportion/proportion.go. An unset capability is the parent's.
    """

    def __init__(self, offered: Amounts, limits: Amounts) -> None:
        """Initialize with the cluster's amounts (`offered`) and the root's capability (`limits`)."""
        self.offered = {name: amount for name, amount in offered.items() if amount > 0}
        self.total = {name: min(amount, limits.get(name, amount)) for name, amount in self.offered.items()}
        self._found: dict[AccountKey, Amounts] = {}
        self._guaranteed: dict[AccountKey, dict[str, int]] = {}

    def of(self, queue: AccountRecord) -> Amounts:
        found = self._found.get(queue.key)
        if found is None:
            found = self._found[queue.key] = self._compute(queue)
        return found

    def binding(self, limits: Amounts) -> dict[str, int]:
        """Return the limits below the cluster's amounts.

        Above them nodes refuse with better reasons, and plugins can admit more than the cluster has.
        """
        return {name: limit for name, limit in limits.items() if limit < self.offered.get(name, 0)}

    def _compute(self, queue: AccountRecord) -> Amounts:
        parent = queue.parent
        if parent is None:
            return self.total
        reserved = self._guaranteed.get(parent.key)
        if reserved is None:
            reserved = self._guaranteed[parent.key] = guaranteed(parent.children.values())
        own, limits, above = guarantee(queue), capability(queue), self.of(parent)
        if not (reserved or limits):
            return above
        return {
            name: real_capability(amount, reserved.get(name, 0), own.get(name, 0), limits.get(name))
            for name, amount in above.items()
        }


class QueueShareRequests:
    """Unused minResources of admitted gangs without elastic parts, per queue and all queues above it."""

    def __init__(self) -> None:
        self._version = 0
        self._own: dict[str, dict[str, int]] = {}
        self._sums: dict[AccountKey, dict[str, int]] = {}

    def of(self, session: QueueSession, queue: AccountRecord) -> Amounts:
        self._version, changed = session.state.gangs.inqueue.claimed_since(self._version)
        for name, amounts in changed.items():
            record = session.ledger.accounts.get(AccountKey(Tree.QUEUE, name))
            for account in record.lineage() if record is not None else ():
                sums = self._sums.setdefault(account.key, {})
                add_amounts(sums, self._own.get(name, {}), -1)
                add_amounts(sums, amounts, 1)
            self._own[name] = amounts
        return self._sums.get(queue.key, _NOTHING)


def real_capabilities(session: ShareView) -> RealCapabilities:
    return session.memo("real capabilities", lambda: _real_capabilities(session))


def _real_capabilities(session: ShareView) -> RealCapabilities:
    return RealCapabilities(session.offered(), capability(session.ledger.accounts[ROOT]))


def admission_room(session: QueueSession, gang: GangRecord) -> int:
    """Return the largest number of gangs like this one that its queue and the queues above can admit now.

    A queue admits while minResources + held + inqueue - elastic <= real capability, per resource in minResources
    (Volcano, plugins/capacity/capacity.go jobEnqueueable). A queue that is not open admits none. Where no
    capability or guarantee limits it, the real capability is the whole cluster, and `overcommit` can admit more
    than that (in Volcano it cannot beside these plugins).
    """
    queue, closed = _entrance(session, gang)
    if closed is not None:
        return 0
    room = UNLIMITED
    for account, name, amount, limit, taken in _bounds(session, gang, queue):
        left = limit - taken
        if amount > left:
            left += session.reclaimable_estimate(gang, account).get(name, 0)
        room = min(room, max(0, left // amount))
    return room


def admission_objection(session: QueueSession, gang: GangRecord) -> tuple[str, str] | None:
    """Return (message about a queue that cannot admit the gang, change that helps), or None.

    Only objections whose changes wake the group are returned.
    """
    queue, closed = _entrance(session, gang)
    if closed is not None:
        return closed
    for account, name, amount, limit, taken in _bounds(session, gang, queue):
        if amount > limit - taken + session.reclaimable_estimate(gang, account).get(name, 0):
            wanted, most = format_quantity(amount, name), format_quantity(limit, name)
            left = format_quantity(max(0, limit - taken), name)
            generated = gang.spec is not None and gang.spec.generated
            lower = "" if generated else "lower minResources, "
            return (
                f"{'it requests' if generated else 'its minResources request'} {wanted} {name}; {account.label} "
                f"has {left} left of its real capability {most}",
                f"wait until groups of {account.label} finish, {lower}raise its capability, "
                "or lower the guarantees of its siblings",
            )
    return None


def _entrance(session: QueueSession, gang: GangRecord) -> tuple[AccountRecord | None, tuple[str, str] | None]:
    """Return (queue of the gang, (obstacle to its admission, change that helps) or None)."""
    spec = gang.spec
    if spec is None:
        return None, None
    queue = session.ledger.accounts.get(AccountKey(Tree.QUEUE, spec.queue))
    if queue is None:
        return None, (f"queue {spec.queue} does not exist", f"create queue {spec.queue}, or use another queue")
    if queue.fault is not None:
        remedy = "open" if queue.fault.code == QUEUE_CLOSED else "repair"
        return queue, (queue.fault.message, f"{remedy} queue {spec.queue}, or use another queue")
    return queue, None


def _bounds(
    session: QueueSession, gang: GangRecord, queue: AccountRecord | None
) -> Iterator[tuple[AccountRecord, str, int, int, int]]:
    """Yield the limits on a gang's admission, leaf first: (queue, resource, requested amount, real capability, used
    and inqueue amount)."""
    spec = gang.spec
    if spec is None or queue is None or not spec.min_resources:
        return
    reals = real_capabilities(session)
    claims = session.memo("claims on queues", QueueShareRequests)
    for account in queue.lineage():
        limits, claimed = reals.binding(reals.of(account)), claims.of(session, account)
        for name, amount in spec.min_resources:
            if amount > 0 and name in limits:
                yield account, name, amount, limits[name], account.used.get(name, 0) + claimed.get(name, 0)
