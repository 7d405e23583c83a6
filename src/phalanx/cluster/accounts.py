"""Records of queues, quotas and charge paths: small mutable objects with exact sums."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from phalanx.cluster.classes import Footprint
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.gang import Problem

Amounts = dict[str, int]
"""Amounts by resource, without zeros."""


class ChargeState(enum.IntEnum):
    """State in which a pod is charged to its queue and quotas; a pod without a state is not charged."""

    PENDING = 0  # pending, for our schedulers
    ALLOCATED = 1  # assumed or bound, not running yet
    RUNNING = 2
    RELEASING = 3  # terminating; charged until it is gone
    NOMINATED = 4  # pending, with its requests reserved until its victims have terminated
    UNPLACEABLE = 5  # pending, and proved to fit on no node even if all nodes were empty


_STATES = tuple(ChargeState)
#: States in which a pod only requests its amounts; an account with a fault does not count them.
WITHOUT_CLAIM = (ChargeState.PENDING, ChargeState.UNPLACEABLE)


class ResourceSums:
    """Sums of requests of pending pods (`pending`) and of charged pods. `used` contains `running`, which contains
    `releasing`. It also contains `nominated`: amounts reserved for nominated pods. `unplaceable` are the requests
    of pending pods that cannot run on the present nodes: no share counts them."""

    __slots__ = ("nominated", "pending", "releasing", "running", "unplaceable", "used")

    def __init__(self) -> None:
        self.pending: Amounts = {}
        self.used: Amounts = {}
        self.running: Amounts = {}
        self.releasing: Amounts = {}
        self.nominated: Amounts = {}
        self.unplaceable: Amounts = {}

    @property
    def allocated(self) -> Amounts:
        """Amounts that the pods of a queue or quota have: the used ones without the nominated ones."""
        if not self.nominated:
            return self.used
        amounts = dict(self.used)
        add_amounts(amounts, self.nominated, -1)
        return amounts

    @property
    def unallocated(self) -> Amounts:
        """Amounts that the pods of a queue or quota request but do not have: the pending, the nominated and the
        unplaceable ones."""
        if not self.nominated and not self.unplaceable:
            return self.pending
        amounts = dict(self.pending)
        add_amounts(amounts, self.nominated, 1)
        add_amounts(amounts, self.unplaceable, 1)
        return amounts

    def add(self, state: ChargeState, amounts: Mapping[str, int], sign: int = 1) -> None:
        if state is ChargeState.PENDING:
            add_amounts(self.pending, amounts, sign)
            return
        if state is ChargeState.UNPLACEABLE:
            add_amounts(self.unplaceable, amounts, sign)
            return
        add_amounts(self.used, amounts, sign)
        if state is ChargeState.ALLOCATED:
            return
        if state is ChargeState.NOMINATED:
            add_amounts(self.nominated, amounts, sign)
            return
        add_amounts(self.running, amounts, sign)
        if state is ChargeState.RELEASING:
            add_amounts(self.releasing, amounts, sign)

    def merge(self, other: ResourceSums, with_pending: bool) -> None:
        add_amounts(self.used, other.used, 1)
        add_amounts(self.running, other.running, 1)
        add_amounts(self.releasing, other.releasing, 1)
        add_amounts(self.nominated, other.nominated, 1)
        if with_pending:
            add_amounts(self.pending, other.pending, 1)
            add_amounts(self.unplaceable, other.unplaceable, 1)

    def as_tuple(self) -> tuple[Amounts, ...]:
        return self.pending, self.used, self.running, self.releasing, self.nominated, self.unplaceable


class AccountRecord(ResourceSums):
    """One queue or quota with its place in its tree and its sums.

    `spec` is None for accounts without a declaration: the queues `default` and `root`, the sum over all elastic
    quotas, the namespaces and users within a queue. `children` are declared accounts only. `fault` is the reason
    why neither this account nor its descendants admit new pods. `guarantee` is reserved for the account while
    unused, `reserved_for_children` is the sum reserved for all children. `guaranteed_resources` are the resources
    with a guarantee here or below. `capability` is the declared limit, as a mapping.
    """

    __slots__ = (
        "capability",
        "children",
        "fault",
        "guarantee",
        "guaranteed_resources",
        "key",
        "parent",
        "reserved_for_children",
        "spec",
        "weight",
    )

    def __init__(self, key: AccountKey, spec: Account | None = None) -> None:
        super().__init__()
        self.key = key
        self.spec = spec
        self.parent: AccountRecord | None = None
        self.children: dict[AccountKey, AccountRecord] = {}
        self.weight = spec.weight if spec is not None else 1
        self.capability: Mapping[str, int] = dict(spec.capability) if spec is not None else {}
        self.fault: Problem | None = None
        self.guarantee: Amounts = {}
        self.reserved_for_children: Amounts = {}
        self.guaranteed_resources: set[str] = set()

    def __repr__(self) -> str:
        return f"AccountRecord({self.key}, used={self.used}, asked={self.pending})"

    def copy_alone(self) -> AccountRecord:
        """Return a copy of the queue or quota with the same parent and the same children."""
        copy = AccountRecord(self.key, self.spec)
        copy.weight, copy.fault, copy.parent, copy.children = self.weight, self.fault, self.parent, self.children
        copy.guarantee, copy.guaranteed_resources = self.guarantee.copy(), self.guaranteed_resources.copy()
        copy.update(self)
        return copy

    def update(self, other: AccountRecord) -> None:
        """Copy from another record the values that change without a change of the trees; mostly none has
        changed."""
        if self.used != other.used:
            self.used = other.used.copy()
        if self.pending != other.pending:
            self.pending = other.pending.copy()
        if self.running != other.running:
            self.running = other.running.copy()
        if self.releasing != other.releasing:
            self.releasing = other.releasing.copy()
        if self.nominated != other.nominated:
            self.nominated = other.nominated.copy()
        if self.unplaceable != other.unplaceable:
            self.unplaceable = other.unplaceable.copy()
        if self.reserved_for_children != other.reserved_for_children:
            self.reserved_for_children = other.reserved_for_children.copy()

    @property
    def label(self) -> str:
        """Name of the queue or quota in messages."""
        if self.spec is not None and self.spec.label:
            return self.spec.label
        key = self.key
        if key.tree in (Tree.NAMESPACE, Tree.USER):
            return f"{key.tree} {key.name or '(none)'} in queue {key.forest}"
        if key.tree is Tree.FIRM and self.parent is not None:
            return f"{self.parent.label} for non-preemptible pods"
        if key.tree is Tree.ELASTIC_QUOTA and not key.name:
            return "all ElasticQuotas together"
        return str(key)

    def idle_guarantee(self, resource: str) -> int:
        """Return the amount of a resource that is reserved for the queue and its descendants: its unused guarantee,
        or the amount reserved for its children if that is larger."""
        unused = self.guarantee.get(resource, 0) - self.used.get(resource, 0)
        return max(0, unused, self.reserved_for_children.get(resource, 0))

    def set_guarantee(self, amounts: Mapping[str, int]) -> None:
        """Set the queue's guarantee and update the reserved amounts of its ancestors."""
        for account in self.lineage():
            account.guaranteed_resources |= amounts.keys()
        before = self._idle_guarantees()
        self.guarantee = dict(amounts)
        self._update_parent(before)

    def add(self, state: ChargeState, amounts: Mapping[str, int], sign: int = 1) -> None:
        if not self.guaranteed_resources or state in WITHOUT_CLAIM:
            super().add(state, amounts, sign)
            return
        before = self._idle_guarantees()
        super().add(state, amounts, sign)
        self._update_parent(before)

    def merge(self, other: ResourceSums, with_pending: bool) -> None:
        before = self._idle_guarantees()
        super().merge(other, with_pending)
        self._update_parent(before)

    def _idle_guarantees(self) -> Amounts:
        return {name: self.idle_guarantee(name) for name in self.guaranteed_resources}

    def _update_parent(self, before: Mapping[str, int]) -> None:
        """Add the change of this queue's reserved amounts to its ancestors' sums."""
        parent = self.parent
        change = {name: self.idle_guarantee(name) - idle for name, idle in before.items()}
        if parent is not None and any(change.values()):
            of_parent = parent._idle_guarantees()
            add_amounts(parent.reserved_for_children, change, 1)
            parent._update_parent(of_parent)

    def lineage(self) -> tuple[AccountRecord, ...]:
        """Return the queue or quota and its ancestors, the root last."""
        accounts = [self]
        while (parent := accounts[-1].parent) is not None:
            accounts.append(parent)
        return tuple(accounts)


class ChargeKey(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Properties that determine a pod's charge path. `queue` is "" for pods of other schedulers."""

    namespace: str
    queue: str
    quota: str = ""
    user: str = ""
    firm: bool = False


class ChargePath(ResourceSums):
    """All pods that are charged to the same queues and quotas: `path`, in the order queue tree, namespace, user,
    quotas.

    Each part of the path runs from the leaf to the root. `queue` is the leaf queue (None if there is none),
    `namespace` and `user` are the accounts within it. `fault` is the reason why no new pods can be charged. `pods`
    is the number of pods of this path in any state.
    """

    __slots__ = ("fault", "key", "moves", "namespace", "path", "pods", "queue", "user")

    def __init__(self, key: ChargeKey) -> None:
        super().__init__()
        self.key = key
        self.path: tuple[AccountRecord, ...] = ()
        self.queue: AccountRecord | None = None
        self.namespace: AccountRecord | None = None
        self.user: AccountRecord | None = None
        self.fault: Problem | None = None
        self.pods = 0
        # Change of the number of pods in each state since the last flush, per footprint.
        self.moves: dict[Footprint, list[int]] = {}

    def __repr__(self) -> str:
        return f"ChargePath({self.key})"

    def move(self, footprint: Footprint, state: ChargeState, count: int) -> None:
        """Record that `count` more (or fewer) pods with this footprint are in a charge state; `flush` adds them to
        the sums."""
        counts = self.moves.get(footprint)
        if counts is None:
            counts = self.moves[footprint] = [0] * len(_STATES)
        counts[state] += count

    def charge(self, footprint: Footprint, count: int) -> None:
        """Charge `count` further pods to the path's queues and quotas at once, for a tentative placement."""
        for account in self.path:
            account.add(ChargeState.ALLOCATED, footprint.amounts, count)

    def charge_sum(self, amounts: Mapping[str, int], sign: int) -> None:
        """Charge the summed requests of many pods to the path's queues and quotas at once."""
        for account in self.path:
            account.add(ChargeState.ALLOCATED, amounts, sign)

    def move_nominated(self, footprint: Footprint, count: int) -> None:
        """Convert the charge of `count` nominated pods to pending (or back, if negative) during a tentative
        placement: the sum of used and pending amounts is unchanged."""
        for account in self.path:
            account.add(ChargeState.ALLOCATED, footprint.amounts, -count)
            if self.fault is None:
                account.add(ChargeState.PENDING, footprint.amounts, count)

    def commit_charge(self, footprint: Footprint, count: int) -> None:
        """Confirm a tentative charge: the next pods to be recorded are these pods."""
        self.add(ChargeState.ALLOCATED, footprint.amounts, count)
        self.move(footprint, ChargeState.ALLOCATED, -count)

    def flush(self) -> None:
        """Add the recorded changes to the sums of the path's queues and quotas."""
        counts_pending = self.fault is None
        for footprint, counts in self.moves.items():
            for state, count in zip(_STATES, counts, strict=True):
                if not count:
                    continue
                self.add(state, footprint.amounts, count)
                if counts_pending or state not in WITHOUT_CLAIM:
                    for account in self.path:
                        account.add(state, footprint.amounts, count)
        self.moves.clear()


def add_amounts(sums: Amounts, amounts: Mapping[str, int], factor: int) -> None:
    """Add `amounts` times `factor` to `sums`, and remove zeros."""
    for name, amount in amounts.items():
        value = sums.get(name, 0) + amount * factor
        if value:
            sums[name] = value
        else:
            sums.pop(name, None)
