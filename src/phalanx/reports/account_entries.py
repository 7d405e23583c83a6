"""What is told about queues and quotas: the stable structure behind `-o json` and `-o yaml`."""

from __future__ import annotations

import msgspec

from phalanx.model.verdict import NamedObject, Objects
from phalanx.views.promises import PromisedStart

Amounts = dict[str, str]
"""resource -> exact Kubernetes quantity."""


class Counts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of pods or gangs. A gang is counted once, by its state: `running` gangs have their minimum on nodes,
    or leave them; `pending` gangs wait for it."""

    running: int = 0
    pending: int = 0


NO_COUNTS = Counts()


class FirstWaiting(msgspec.Struct, omit_defaults=True):
    """What is first in order of those that wait: the verdict on it, and its promised start, as `phalanx why` gives
    them. `unit` is the gang or pod as an object, `objects` are those that the texts name, absent where that is not
    known."""

    name: str
    reason: str
    message: str
    change: str = ""
    start: PromisedStart | None = None
    unit: NamedObject | None = None
    objects: Objects = None


class LimitEntry(msgspec.Struct):
    """What the account may hold at most now, in the word of the plugin that says so."""

    word: str
    limits: Amounts


class BudgetUse(msgspec.Struct):
    """What an account may use up per window, and has: resource-hours as quantities (cpu in core-hours)."""

    window: str
    ends: str
    hours: Amounts
    spent: Amounts


class AccountEntry(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What every account has. Fields that are empty are left out of JSON and YAML.

    `share` is the largest part, in percent, that it uses of any resource of the cluster; `dominant` is that
    resource (of an account that uses nothing, the one that dominates the whole cluster's use), `own_share` its
    part of it by right: what it is entitled to or its min. `used` is charged for pods on nodes, `running` is the
    part of it that runs, `pending` is asked for by pods that wait. `borrowed` is used above its right, `lent` the
    part of its right that others hold; `partners` are whom from or to, the largest first; of many only
    the first few are named and `further_partners` counts the others. `first` is what waits first. `min_run_time`
    is a duration, `eviction_rate` reads `10/1m`: how far its pods are protected against eviction. `self_protection`
    and `max_protection_time` are what it says itself about how far they may protect themselves.
    """

    name: str
    depth: int = 0
    parent: str = ""
    used: Amounts
    running: Amounts = {}
    pending: Amounts = {}
    share: float = 0.0
    own_share: float = 0.0
    dominant: str = ""
    gangs: Counts = NO_COUNTS
    pods: Counts = NO_COUNTS
    borrowed: Amounts = {}
    lent: Amounts = {}
    partners: list[str] = []
    further_partners: int = 0
    ceilings: list[LimitEntry] = []
    budget: BudgetUse | None = None
    min_run_time: str = ""
    eviction_rate: str = ""
    self_protection: str = ""
    max_protection_time: str = ""
    first: FirstWaiting | None = None
    fault: str = ""
    warnings: list[str] = []

    @property
    def borrowed_share(self) -> float:
        """The part of its share, in percent, that it has beyond its right. (Under a policy by which nobody has a
        right nothing is borrowed.)"""
        return max(0.0, self.share - self.own_share) if self.borrowed else 0.0


class SubqueueEntry(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A namespace or user within a queue; `past` is its share over time, as a queue's."""

    kind: str
    name: str
    weight: int
    used: Amounts
    pending: Amounts = {}
    share: float = 0.0
    past: float | None = None
    first: FirstWaiting | None = None


class QueueEntry(AccountEntry, omit_defaults=True, kw_only=True):
    """`deserved` is what the policy in force gives the queue now, `entitled` what it would give if every queue
    asked for everything; empty where no plugin of the policy says. `past` is the fading average of its share, in
    percent, None where none is kept.
    """

    state: str
    weight: int
    priority: int = 0
    reclaimable: bool = True
    guarantee: Amounts = {}
    deserved: Amounts = {}
    entitled: Amounts = {}
    capability: Amounts = {}
    past: float | None = None
    tenants: list[SubqueueEntry] = []


class QuotaEntry(AccountEntry, omit_defaults=True, kw_only=True):
    """`runtime` is Koordinator's: what the quota may use now that idle siblings lend."""

    family: str
    tree: str = ""
    min: Amounts = {}
    max: Amounts = {}
    runtime: Amounts = {}
    lends: bool = True
    namespaces: list[str] = []


class QueueReport(msgspec.Struct, omit_defaults=True):
    """Queues and quotas each in the order of their trees: parents first, then children by name. `cluster` is what
    all nodes offer, `plugins` are those of the policy that speak about queues.
    """

    cluster: Amounts
    plugins: list[str]
    queues: list[QueueEntry]
    quotas: list[QuotaEntry]
    warnings: list[str] = []
