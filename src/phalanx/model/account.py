"""Accounts: the nodes of capacity trees that pods are charged to, whatever their dialect calls them."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from phalanx.model.gang import GroupRef, Problem
from phalanx.model.pools import PoolRule

Limits = tuple[tuple[str, int], ...]
"""Amounts per resource, sorted by name. Unlike Requests it keeps zeros: 0 is a ceiling, absent is none."""

DEFAULT_QUEUE = "default"
ROOT_QUEUE = "root"

# The quotas that Koordinator makes itself. The system and default quotas stand beside the tree, not in it:
# their pods neither give nor take (disableDefaultQuotaPreemption), and what they use is not there to be shared.
KOORDINATOR_ROOT = "koordinator-root-quota"
KOORDINATOR_SYSTEM = "koordinator-system-quota"
KOORDINATOR_DEFAULT = "koordinator-default-quota"
KOORDINATOR_BESIDE = (KOORDINATOR_DEFAULT, KOORDINATOR_SYSTEM)

SYSTEM_NAMESPACE = "kube-system"
KOORDINATOR_NAMESPACE = "koordinator-system"
# Where administrators and the cluster itself write, and tenants do not.
ADMINISTRATIVE_NAMESPACES = (SYSTEM_NAMESPACE, KOORDINATOR_NAMESPACE)


def limits_of(amounts: Mapping[str, int]) -> Limits:
    return tuple(sorted(amounts.items()))


class Tree(enum.StrEnum):
    """What kind of tree an account stands in. A pod is charged on one path of each tree that knows it."""

    QUEUE = "queue"  # Volcano's and kube-batch's queues: cluster-wide, below `root`
    NAMESPACE = "namespace"  # the namespaces within a queue; they come with their pods
    USER = "user"  # the users within a queue, where a user label is configured
    ELASTIC_QUOTA = "elastic-quota"  # scheduler-plugins: flat, one a namespace
    KOORDINATOR = "koordinator"  # quota trees by labels
    FIRM = "koordinator-firm"  # what of a Koordinator quota its pods that may never be evicted hold
    ACK = "elastic-quota-tree"  # ACK's single tree object


class AccountKey(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """`forest` tells several trees of one kind apart (Koordinator's tree-id); mostly ""."""

    tree: Tree
    name: str
    forest: str = ""

    def __str__(self) -> str:
        return f"{self.tree} {self.forest}/{self.name}" if self.forest else f"{self.tree} {self.name}"


class AccountState(enum.StrEnum):
    OPEN = "Open"
    CLOSED = "Closed"  # takes nothing new
    CLOSING = "Closing"  # the same, and something in it still runs
    UNKNOWN = "Unknown"


class Budget(msgspec.Struct, frozen=True):
    """A cap on what an account may use up per window: `hours` are resource-hours (cpu in milli-core-hours).

    Windows are `window` seconds long and begin at multiples of it since the epoch.
    """

    hours: Limits
    window: int


class SelfProtection(enum.StrEnum):
    """How far pods may keep themselves from being evicted by what their owners say."""

    NONE = "none"  # not at all
    GUARANTEED = "guaranteed"  # against others as far as their account's guarantee reaches
    ALL = "all"  # whatever it costs others


class EvictionRate(msgspec.Struct, frozen=True):
    """At most `pods` may be evicted from an account within any `window` seconds; a whole gang that is larger may
    go when nothing else went within the window."""

    pods: int
    window: int


class Account(msgspec.Struct, frozen=True):
    """One account as declared.

    `guarantee` is never lent, `deserved` is lent and taken back (None where the dialect gives none, as opposed to
    nothing deserved), `capability` is the ceiling; resources that are absent are 0, 0 and unlimited. An
    ElasticQuota's min is `deserved`, its max `capability`. `weight` shares the surplus; `weights` does so per
    resource (Koordinator's shared-weight; where absent, the capability's amount counts). `parent` is None for the
    roots of a tree. `namespaces` are those whose pods are charged here unless they name another account. `parental`
    marks an account that may have children only and no pods. `lends` is False where what is deserved stays
    reserved while idle. `total` replaces the cluster's capacity for the tree below (Koordinator's total-resource).
    `fifo` makes the first that waits hold up those behind it. `hierarchy` is Volcano's legacy annotation:
    (name, weight) from the root down. `label` is what people call the account in sentences, for example
    `ElasticQuota team-a/quota`. `problem` is set where the declaration cannot be used at all: then nothing new is
    charged to it; `warnings` hold nothing back.
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
    scales: bool = True  # its minimum shrinks when all minima together exceed what there is
    total: Limits | None = None
    fifo: bool = False
    hierarchy: tuple[tuple[str, int], ...] = ()
    budget: Budget | None = None
    min_run_time: int = 0  # seconds from its start on for which none of its pods is evicted for others
    max_run_time: int = 0  # seconds for which its pods may run; 0: as the account above says
    eviction_rate: EvictionRate | None = None
    self_protection: SelfProtection | None = None  # None: what the account above says, else the policy
    max_protection: int = 0  # seconds from its binding on for which a pod may protect itself; 0: no limit
    pools: PoolRule | None = None  # the groups of nodes that its pods may use
    created: int = 0
    problem: Problem | None = None
    warnings: tuple[Problem, ...] = ()


class ResourceQuota(msgspec.Struct, frozen=True):
    """Kubernetes' own quota on what may be created in a namespace; keys are as the object writes them
    (`requests.cpu`, `limits.memory`, `pods`, `requests.nvidia.com/gpu` ...), amounts in the resource's units.

    `scoped` quotas count some pods only.
    """

    namespace: str
    name: str
    hard: Limits = ()
    used: Limits = ()
    scoped: bool = False
