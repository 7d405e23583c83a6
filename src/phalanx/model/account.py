"""Accounts: tree nodes of queues and quotas (of Volcano, Koordinator, ...) whose limits count the usage of pods."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from phalanx.model.gang import GroupRef, Problem
from phalanx.model.pools import PoolRule

Limits = tuple[tuple[str, int], ...]
"""Amounts per resource, sorted by name. Unlike in Requests, 0 is a limit and an absent resource is unlimited."""

DEFAULT_QUEUE = "default"
ROOT_QUEUE = "root"

# Quotas that Koordinator creates. The system and default quotas are beside the tree, not in it: their pods
# neither preempt nor are preempted (disableDefaultQuotaPreemption), and the tree cannot share what they use.
KOORDINATOR_ROOT = "koordinator-root-quota"
KOORDINATOR_SYSTEM = "koordinator-system-quota"
KOORDINATOR_DEFAULT = "koordinator-default-quota"
KOORDINATOR_BESIDE = (KOORDINATOR_DEFAULT, KOORDINATOR_SYSTEM)

SYSTEM_NAMESPACE = "kube-system"
KOORDINATOR_NAMESPACE = "koordinator-system"
# Namespaces that only administrators and the cluster write to.
ADMINISTRATIVE_NAMESPACES = (SYSTEM_NAMESPACE, KOORDINATOR_NAMESPACE)


def limits_of(amounts: Mapping[str, int]) -> Limits:
    return tuple(sorted(amounts.items()))


class Tree(enum.StrEnum):
    """Kind of an account tree. A pod is charged on one path of each tree that contains it."""

    QUEUE = "queue"  # Volcano and kube-batch queues: cluster-wide, below `root`
    NAMESPACE = "namespace"  # namespaces within a queue, created by their pods
    USER = "user"  # users within a queue, if a user label is configured
    ELASTIC_QUOTA = "elastic-quota"  # scheduler-plugins: flat, one per namespace
    KOORDINATOR = "koordinator"  # Koordinator quota trees, by labels
    FIRM = "koordinator-firm"  # usage of a Koordinator quota by its non-preemptible pods
    ACK = "elastic-quota-tree"  # ACK: one object with the whole tree


class AccountKey(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Key of an account; `forest` distinguishes account trees of one kind (Koordinator's tree-id), mostly ""."""

    tree: Tree
    name: str
    forest: str = ""

    def __str__(self) -> str:
        return f"{self.tree} {self.forest}/{self.name}" if self.forest else f"{self.tree} {self.name}"


class AccountState(enum.StrEnum):
    OPEN = "Open"
    CLOSED = "Closed"  # accepts no new pods
    CLOSING = "Closing"  # closed, and pods still run in it
    UNKNOWN = "Unknown"


class Budget(msgspec.Struct, frozen=True):
    """Budget of an account: a limit of its usage per time window; `hours` are resource-hours (cpu in
    milli-core-hours).

    Windows are `window` seconds long and begin at multiples of it since the epoch.
    """

    hours: Limits
    window: int


class SelfProtection(enum.StrEnum):
    """Scope of the eviction protection that pod owners can request for their pods."""

    NONE = "none"  # no protection
    GUARANTEED = "guaranteed"  # protection within the account's guarantee
    ALL = "all"  # full protection


class EvictionRate(msgspec.Struct, frozen=True):
    """Maximum of `pods` that are evicted from an account within any `window` seconds.

    A larger gang can be evicted as a whole if no other pod was evicted within the window.
    """

    pods: int
    window: int


class Account(msgspec.Struct, frozen=True):
    """Account (queue or quota) as its API object declares it.

    `guarantee` is never lent. `deserved` is lent and reclaimed (None if the dialect has none, as opposed to
    zero). `capability` is the limit. Absent resources are 0, 0 and unlimited. The min of an ElasticQuota is
    `deserved`, its max is `capability`. `weight` shares the surplus; `weights` does so per resource
    (Koordinator's shared-weight; the default is the capability's amount). `parent` is None for the roots of a
    tree. Pods of `namespaces` are charged here unless they name another account. `parental` accounts have only
    child accounts and no pods. `lends` is False if idle deserved quota remains reserved. `total` replaces the
    cluster's capacity for the tree below (Koordinator's total-resource). `fifo`: the first waiting unit blocks
    all later ones. `hierarchy` is Volcano's legacy annotation: (name, weight) from the root down. `label` is the
    name of the account in messages, for example `ElasticQuota team-a/quota`. `problem` is the reason why the
    declaration is unusable: then no new pod is charged to the account; `warnings` have no effect on scheduling.
    """

    key: AccountKey
    uid: str = ""
    label: str = ""
    source: GroupRef | None = None
    parent: AccountKey | None = None
    parental: bool = False
    guarantee: Limits = ()
    deserved: Limits | None = None
    capability: Limits = ()
    weight: int = 1
    weights: Limits = ()
    priority: int = 0
    reclaimable: bool = True
    state: AccountState = AccountState.OPEN
    namespaces: tuple[str, ...] = ()
    lends: bool = True
    scales: bool = True  # the minimum shrinks if all minima together exceed the capacity
    total: Limits | None = None
    fifo: bool = False
    hierarchy: tuple[tuple[str, int], ...] = ()
    budget: Budget | None = None
    min_run_time: int = 0  # seconds after their start during which its pods are not evicted for other pods
    collect_after: int | None = None  # seconds until a waiting gang collects room, -1: never; None: inherited
    max_run_time: int = 0  # maximum run time of its pods in seconds; 0: inherited from the parent account
    eviction_rate: EvictionRate | None = None
    self_protection: SelfProtection | None = None  # None: inherited from the parent account, else the policy's
    max_protection: int = 0  # seconds after its binding during which a pod can protect itself; 0: no limit
    pools: PoolRule | None = None  # groups of nodes that its pods can use
    created: int = 0
    problem: Problem | None = None
    warnings: tuple[Problem, ...] = ()


class ResourceQuota(msgspec.Struct, frozen=True):
    """Kubernetes ResourceQuota of a namespace.

    Keys have the names of the object (`requests.cpu`, `limits.memory`, `pods`, `requests.nvidia.com/gpu` ...),
    amounts are in the units of the resource. `scoped` quotas count only some of the pods.
    """

    namespace: str
    name: str
    hard: Limits = ()
    used: Limits = ()
    scoped: bool = False
