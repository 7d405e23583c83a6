"""Accounts and charge paths as the cluster keeps them: small mutable records with exact sums."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from phalanx.cluster.classes import Footprint
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.gang import Problem

Amounts = dict[str, int]
"""resource -> amount; zeros are left out."""


class ChargeState(enum.IntEnum):
    """As what a pod counts towards its accounts; a pod without one does not count."""

    PENDING = 0  # ours to place
    ALLOCATED = 1  # on a node or on the way to one, does not run yet
    RUNNING = 2
    RELEASING = 3  # terminating; it holds what it holds until it is gone
    NOMINATED = 4  # ours to place, and what it asks for is kept for it until evicted pods have left


_STATES = tuple(ChargeState)


class ResourceSums:
    """What pods ask for (`pending`) and hold. `used` contains `running`, which contains `releasing`; it contains
    `nominated` too: what nobody has yet but nobody else may take."""

    __slots__ = ("nominated", "pending", "releasing", "running", "used")

    def __init__(self) -> None:
        self.pending: Amounts = {}
        self.used: Amounts = {}
        self.running: Amounts = {}
        self.releasing: Amounts = {}
        self.nominated: Amounts = {}

    @property
    def allocated(self) -> Amounts:
        """What pods really hold: what is used, less what is only nominated."""
        if not self.nominated:
            return self.used
        amounts = dict(self.used)
        add_amounts(amounts, self.nominated, -1)
        return amounts

    @property
    def unallocated(self) -> Amounts:
        """What pods ask for and do not have yet: what is pending, and what is nominated."""
        if not self.nominated:
            return self.pending
        amounts = dict(self.pending)
        add_amounts(amounts, self.nominated, 1)
        return amounts

    def add(self, state: ChargeState, amounts: Mapping[str, int], sign: int = 1) -> None:
        if state is ChargeState.PENDING:
            add_amounts(self.pending, amounts, sign)
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

    def merge(self, other: ResourceSums, asked: bool) -> None:
        add_amounts(self.used, other.used, 1)
        add_amounts(self.running, other.running, 1)
        add_amounts(self.releasing, other.releasing, 1)
        add_amounts(self.nominated, other.nominated, 1)
        if asked:
            add_amounts(self.pending, other.pending, 1)

    def as_tuple(self) -> tuple[Amounts, Amounts, Amounts, Amounts, Amounts]:
        return self.pending, self.used, self.running, self.releasing, self.nominated


class AccountRecord(ResourceSums):
    """One account with its place in its tree and its sums.

    `spec` is None for accounts that nobody declares: the queues `default` and `root`, the sum over all elastic
    quotas, the namespaces and users within a queue. `children` are declared accounts only. `fault` says why
    nothing new may be charged here or below. `guarantee` is what is kept for the account while it does not use it,
    `reserved_for_children` what is kept so for all children together, `guaranteed_resources` the resources for
    which there is any such thing here or below. `capability` is the declared ceiling, as a mapping.
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
        """The account as it is now, with the same parent and the same children."""
        copy = AccountRecord(self.key, self.spec)
        copy.weight, copy.fault, copy.parent, copy.children = self.weight, self.fault, self.parent, self.children
        copy.guarantee, copy.guaranteed_resources = self.guarantee.copy(), self.guaranteed_resources.copy()
        copy.update(self)
        return copy

    def update(self, other: AccountRecord) -> None:
        """Takes over what changes without a change of the trees. Mostly nothing has."""
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
        if self.reserved_for_children != other.reserved_for_children:
            self.reserved_for_children = other.reserved_for_children.copy()

    @property
    def label(self) -> str:
        """What the account is called in sentences."""
        if self.spec is not None and self.spec.label:
            return self.spec.label
        key = self.key
        if key.tree in (Tree.NAMESPACE, Tree.USER):
            return f"{key.tree} {key.name or '(none)'} in queue {key.forest}"
        if key.tree is Tree.FIRM and self.parent is not None:
            return f"{self.parent.label} for pods that may not be preempted"
        if key.tree is Tree.ELASTIC_QUOTA and not key.name:
            return "all ElasticQuotas together"
        return str(key)

    def idle_guarantee(self, resource: str) -> int:
        """What is kept for the account and everything below it: what it is guaranteed and does not use, or what is
        kept for its children if that is more."""
        unused = self.guarantee.get(resource, 0) - self.used.get(resource, 0)
        return max(0, unused, self.reserved_for_children.get(resource, 0))

    def set_guarantee(self, amounts: Mapping[str, int]) -> None:
        """From now on so much is kept for the account."""
        for account in self.lineage():
            account.guaranteed_resources |= amounts.keys()
        before = self._idle_guarantees()
        self.guarantee = dict(amounts)
        self._update_parent(before)

    def add(self, state: ChargeState, amounts: Mapping[str, int], sign: int = 1) -> None:
        if not self.guaranteed_resources or state is ChargeState.PENDING:
            super().add(state, amounts, sign)
            return
        before = self._idle_guarantees()
        super().add(state, amounts, sign)
        self._update_parent(before)

    def merge(self, other: ResourceSums, asked: bool) -> None:
        before = self._idle_guarantees()
        super().merge(other, asked)
        self._update_parent(before)

    def _idle_guarantees(self) -> Amounts:
        return {name: self.idle_guarantee(name) for name in self.guaranteed_resources}

    def _update_parent(self, before: Mapping[str, int]) -> None:
        """Carries the change of what is kept for this account up the tree."""
        parent = self.parent
        change = {name: self.idle_guarantee(name) - idle for name, idle in before.items()}
        if parent is not None and any(change.values()):
            of_parent = parent._idle_guarantees()
            add_amounts(parent.reserved_for_children, change, 1)
            parent._update_parent(of_parent)

    def lineage(self) -> tuple[AccountRecord, ...]:
        """The account and its ancestors, the root last."""
        found = [self]
        while (parent := found[-1].parent) is not None:
            found.append(parent)
        return tuple(found)


class ChargeKey(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """What decides where a pod is charged. `queue` is "" for pods of other schedulers."""

    namespace: str
    queue: str
    quota: str = ""
    user: str = ""
    firm: bool = False


class ChargePath(ResourceSums):
    """All pods that are charged to the same accounts: `path`, in the order queue tree, namespace, user, quotas.

    Every path runs from the leaf to the root. `queue` is the leaf queue (None if there is none), `namespace` and
    `user` are the accounts within it. `fault` says why nothing new may be charged. `pods` counts the pods that
    belong here, whatever their state.
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
        # Per footprint how many more pods count in each state since the last flush.
        self.moves: dict[Footprint, list[int]] = {}

    def __repr__(self) -> str:
        return f"ChargePath({self.key})"

    def move(self, footprint: Footprint, state: ChargeState, count: int) -> None:
        """Notes that so many more pods count in a state; `flush` carries it up the path."""
        counts = self.moves.get(footprint)
        if counts is None:
            counts = self.moves[footprint] = [0] * len(_STATES)
        counts[state] += count

    def charge(self, footprint: Footprint, count: int) -> None:
        """Lets the accounts hold so many more pods at once, while a plan is being tried."""
        for account in self.path:
            account.add(ChargeState.ALLOCATED, footprint.amounts, count)

    def charge_sum(self, amounts: Mapping[str, int], sign: int) -> None:
        """The same for what many pods hold in sum."""
        for account in self.path:
            account.add(ChargeState.ALLOCATED, amounts, sign)

    def move_nominated(self, footprint: Footprint, count: int) -> None:
        """Counts what so many pods are nominated for as asked for only (or the other way round, if negative), while
        it is being tried where they go: in sum they want what they wanted before."""
        for account in self.path:
            account.add(ChargeState.ALLOCATED, footprint.amounts, -count)
            if self.fault is None:
                account.add(ChargeState.PENDING, footprint.amounts, count)

    def commit_charge(self, footprint: Footprint, count: int) -> None:
        """What was charged at once stays: the pods that are counted next are those."""
        self.add(ChargeState.ALLOCATED, footprint.amounts, count)
        self.move(footprint, ChargeState.ALLOCATED, -count)

    def flush(self) -> None:
        """Carries what was noted up the path."""
        asks = self.fault is None
        for footprint, counts in self.moves.items():
            for state, count in zip(_STATES, counts, strict=True):
                if not count:
                    continue
                self.add(state, footprint.amounts, count)
                if asks or state is not ChargeState.PENDING:
                    for account in self.path:
                        account.add(state, footprint.amounts, count)
        self.moves.clear()


def add_amounts(sums: Amounts, amounts: Mapping[str, int], factor: int) -> None:
    """`sums += amounts x factor`; what comes to nothing is left out."""
    for name, amount in amounts.items():
        value = sums.get(name, 0) + amount * factor
        if value:
            sums[name] = value
        else:
            sums.pop(name, None)
