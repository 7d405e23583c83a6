"""Data structures of queues and quotas for `-o json` and `-o yaml`, which stay stable between releases."""

from __future__ import annotations

import msgspec

from phalanx.model.verdict import NamedObject, Objects
from phalanx.views.promises import PromisedStart

Amounts = dict[str, str]
"""resource -> exact Kubernetes quantity."""


class Counts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of pods or gangs of a queue or quota.

    A gang is counted once, by its state: the minimum of `running` gangs is bound or terminating; the minimum of
    `pending` gangs is not bound.
    """

    running: int = 0
    pending: int = 0


NO_COUNTS = Counts()


class FirstWaiting(msgspec.Struct, omit_defaults=True):
    """First waiting gang or pod of a queue or quota, with its verdict and promised start as in `phalanx why`.

    `unit` is the gang or pod as an object. `objects` are the objects that the texts name, None if unknown.
    """

    name: str
    reason: str
    message: str
    change: str = ""
    start: PromisedStart | None = None
    unit: NamedObject | None = None
    objects: Objects = None


class LimitEntry(msgspec.Struct):
    """Current limit of a queue or quota, in the term of the plugin that sets it."""

    word: str
    limits: Amounts


class BudgetUse(msgspec.Struct):
    """Budget of a queue or quota per time window and its usage, in resource-hours as quantities (cpu in
    core-hours)."""

    window: str
    ends: str
    hours: Amounts
    spent: Amounts


class AccountEntry(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Common fields of queues and quotas in reports. JSON and YAML omit empty fields.

    `share` is the largest percentage that the account uses of any cluster resource; `dominant` is that resource.
    For an account without usage, `dominant` is the dominant resource of its own amount. `own_share` is the
    account's own percentage of `dominant`: its entitled or min amount. `used` is charged for pods on nodes,
    `running` is the running part of it, `pending` sums the requests of pending pods. `borrowed` is usage above the
    own amount, `lent` the own amount that other accounts use. `partners` are the lenders or borrowers, largest
    first; `further_partners` counts the unnamed ones. `first` is the first waiting unit. `min_run_time` is a
    duration and `eviction_rate` has the form `10/1m`: both protect the account's pods from eviction.
    `self_protection` and `max_protection_time` are the account's own settings for pods that protect themselves.
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
        """Part of the share that is borrowed, in percent. It is 0 under a policy without own amounts."""
        return max(0.0, self.share - self.own_share) if self.borrowed else 0.0


class SubqueueEntry(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Namespace or user within a queue, in a report; `past` is its decayed share, as for a queue."""

    kind: str
    name: str
    weight: int
    used: Amounts
    pending: Amounts = {}
    share: float = 0.0
    past: float | None = None
    first: FirstWaiting | None = None


class QueueEntry(AccountEntry, omit_defaults=True, kw_only=True):
    """Queue in a report.

    `deserved` is the queue's current deserved amount, `entitled` the amount if every queue had unlimited demand;
    both are empty if no plugin of the policy sets them. `past` is the decayed average share in percent, None if the
    policy keeps no history.
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
    """Quota in a report. `runtime` is Koordinator's runtime quota: the current limit including loans of idle
    siblings."""

    family: str
    tree: str = ""
    min: Amounts = {}
    max: Amounts = {}
    runtime: Amounts = {}
    lends: bool = True
    namespaces: list[str] = []


class QueueReport(msgspec.Struct, omit_defaults=True):
    """Report of queues and quotas, each in tree order: parents first, then children by name.

    `cluster` is the capacity of all nodes. `plugins` are the policy's plugins that affect queues.
    """

    cluster: Amounts
    plugins: list[str]
    queues: list[QueueEntry]
    quotas: list[QuotaEntry]
    warnings: list[str] = []
