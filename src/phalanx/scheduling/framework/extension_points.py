"""Extension points of plugins by subject, with their arguments and results."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.nodes.backoff import NodeBackoff
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.model.decisions import EvictionReason
from phalanx.model.verdict import Verdict
from phalanx.scheduling.framework.load import Load
from phalanx.scheduling.framework.task_buckets import TaskBuckets
from phalanx.scheduling.framework.view import View, WaitingUnit
from phalanx.scheduling.quota.limits import Limit


class EvictVeto(msgspec.Struct, frozen=True):
    """Reason why a pod cannot be evicted: a phrase that continues "it ". `until` is the end of the veto in seconds
    since the epoch, None if unknown.

    With `own` the pod's owner declared the protection. It then counts only as far as the pod's accounts allow
    self-protection (`preemption/rules/self_protection.py`).
    """

    why: str
    until: float | None = None
    own: bool = False


class Victim(msgspec.Struct, frozen=True):
    """A pod to evict although no unit needs its room. `message` is one sentence with the reason.

    If the pod's gang would fall below its minimum, the whole gang is evicted with `whole`; otherwise the pod is not
    evicted.
    """

    record: PodRecord
    reason: EvictionReason
    message: str
    whole: bool = False


SortKey = Any
"""A value that compares with values of the same kind; the smallest sorts first."""


class Vote(enum.IntEnum):
    """A three-valued opinion. Any REJECT of a tier decides, else any PERMIT, else the next tier votes."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class OrderPlugin:
    """Order of queues, gangs and pods. Keys are compared plugin by plugin in the order of the tiers; the smallest
    first.
    """

    separates_bands: ClassVar[bool] = False
    """Whether the surplus of a gang is scheduled before every gang with a larger `gang_order`."""
    order_drifts: ClassVar[bool] = False
    """Whether `gang_order` of a gang can change although the gang itself has not changed."""

    def queue_order(self, session: View, account: AccountRecord) -> SortKey:
        """Return the sort key of a queue among its siblings.

        It is read again after every allocation, and an allocation never decreases it.
        """
        raise NotImplementedError

    def subqueues(self, session: View, charge_path: ChargePath) -> tuple[AccountRecord, ...]:
        """Return the accounts within a queue that share turns, outermost first; they sort after priority, before
        other keys.
        """
        raise NotImplementedError

    def subqueue_order(self, session: View, account: AccountRecord) -> SortKey:
        """Return the sort key of an account among its siblings, as `queue_order` does."""
        raise NotImplementedError

    def gang_order(self, session: View, gang: GangRecord | PodRecord) -> SortKey:
        """Return the sort key of a gang or of a single pod."""
        raise NotImplementedError

    def pod_order(self, session: View, pod: PodRecord) -> SortKey:
        """Return the sort key of a member within its gang."""
        raise NotImplementedError

    def task_buckets(self, session: View, gang: GangRecord) -> TaskBuckets | None:
        """Return the members of a gang that prefer a common node; None without a preference.

        The first plugin with a result decides.
        """
        raise NotImplementedError


class QuotaPlugin:
    """Limits and shares of accounts (queues, quotas, namespaces, users).

    Amounts are resource -> integer in its smallest unit (millicores, bytes, else pieces).
    """

    reclaim_level: int | None = None
    """Number of levels above a queue that count when another queue reclaims from it; None: all."""

    def limit(self, session: View, account: AccountRecord) -> Limit | None:
        """Return the account's maximum in this cycle; a pod must stay within all limits of all accounts on its
        charge path.
        """
        raise NotImplementedError

    def deserved(self, session: View, account: AccountRecord) -> Mapping[str, int] | None:
        """Return the present deserved amounts of a queue; None if the plugin does not define them."""
        raise NotImplementedError

    def nominal_quota(self, session: View, account: AccountRecord) -> Mapping[str, int] | None:
        """Return the deserved amounts if every queue requested everything; usage above them is borrowed."""
        raise NotImplementedError

    def declared_resources(self, session: View, account: AccountRecord) -> frozenset[str]:
        """Return the resources for which a queue or a descendant declares its deserved amounts.

        Without this method: all resources of which any queue deserves an amount.
        """
        raise NotImplementedError

    def deserved_with_request(
        self, session: View, account: AccountRecord, asker: AccountRecord, wanted: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        """Return the deserved amounts of a queue if queue `asker` requested `wanted` more; `asker` can be the queue
        itself.

        Without an implementation these are the present deserved amounts.
        """
        raise NotImplementedError

    def runtime_quota(self, session: View, account: AccountRecord) -> Mapping[str, int]:
        """Return the present limit of a quota that lends and borrows (Koordinator's runtime quota)."""
        raise NotImplementedError

    def blocked(self, session: View, unit: GangRecord | PodRecord, charge_path: ChargePath) -> Verdict | None:
        """Return the reason why no new pod of any size can be charged to the path now; None if one can."""
        raise NotImplementedError

    def recheck_at(self, session: View, unit: GangRecord | PodRecord, charge_path: ChargePath) -> float | None:
        """Return when the result for a waiting unit changes with time, in seconds since the epoch; None if
        never.
        """
        raise NotImplementedError


class EvictionPlugin:
    """Protection and order of victims, and evictions by plugins."""

    keeps_budgets: ClassVar[bool] = False
    """Whether no set of victims can violate a PodDisruptionBudget."""
    honours_owners: ClassVar[bool] = False
    """Whether the plugin vetoes for owners of pods with a cooldown or a disruption budget (`EvictVeto.own`)."""

    def evict_veto(self, session: View, record: PodRecord) -> EvictVeto | None:
        """Return a veto against an eviction of the pod by any action; None without objection.

        A veto of any plugin in any tier decides.
        """
        raise NotImplementedError

    def victim_order(self, session: View, record: PodRecord) -> SortKey:
        """Return the sort key of a victim among victims that are equal in borrowing and priority."""
        raise NotImplementedError

    def victims(self, session: View) -> Iterable[Victim]:
        """Yield the pods to evict now although no unit needs their room, most urgent first.

        Pods that are vetoed, protected by a budget or required by their gang are not evicted. Each victim is
        decided before the next is read: from then on it is terminating, or it stays.
        """
        raise NotImplementedError


class LifecyclePlugin:
    """Set-up of a plugin for a cluster, and its timers."""

    def configure(self, nodes: NodeTable, backoff: NodeBackoff) -> None:
        """Configure the plugin before pods are placed under its policy.

        It sets the selection rules of the node allocators and receives state that outlasts the policy, such as
        nodes in back-off after their kubelets rejected pods.
        """
        raise NotImplementedError

    def next_wake(self, session: View) -> float | None:
        """Return when the plugin needs a cycle even without events, in seconds since the epoch; None if never."""
        raise NotImplementedError

    def time_key(self, now: float) -> Hashable:
        """Record the time before a cycle; return a key of its effect.

        While the key stays equal, `filter`, `explain` and `static_score` of the plugin return equal results for
        equal nodes.
        """
        raise NotImplementedError


class FilterPlugin:
    """Selection of the nodes for a class of equal pods.

    Each method is called once for a class and many nodes. `rows` are positions in the arrays of `nodes`; results
    for rows have one entry per row, in their order.
    """

    def pre_filter(self, pod_class: ClassRecord) -> str | None:
        """Return the reason why no node can fit the class in any state; None if one can."""
        raise NotImplementedError

    def filter(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        """Return bool[rows]: the nodes that the class can use; all filters must agree.

        The result depends only on labels, taints and liveness (changes that `nodes.relabelled` records) and on the
        `time_key`, not on amounts or on placed pods.
        """
        raise NotImplementedError

    def max_copies(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> IntArray:
        """Return int64[rows]: the maximum number of further copies per row by idle amounts.

        `explain` returns the reason for 0.
        """
        raise NotImplementedError

    def pre_bind_check(self, pod_class: ClassRecord, nodes: NodeTable, row: int) -> bool:
        """Return whether a pod of the class can be placed on its chosen row.

        After a refusal, `filter` must exclude the row.
        """
        raise NotImplementedError

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        """Return (reason in kube-scheduler's words, bool[rows] that it excludes): the parts of the result of
        `filter`.
        """
        raise NotImplementedError


class ScorePlugin:
    """Scores of nodes for a class of equal pods.

    Scores of all plugins are added; by convention each is 0 to 100 times the plugin's weight.
    """

    @property
    def depends_on_other_nodes(self) -> bool:
        """True if the score of a node depends on pods of other nodes. Then nodes are scored again after each
        pod.
        """
        return False

    @property
    def default_score(self) -> Callable[[ClassRecord, NodeTable], FloatArray | None] | None:
        """Part of `static_score` that neither pods nor nodes state; it does not prevent repair moves."""
        return None

    def static_score(self, pod_class: ClassRecord, nodes: NodeTable, mask: BoolArray) -> FloatArray | None:
        """Return float64[N]: a score per row of `nodes` from the inputs of `filter` and the GPUs that
        nodes offer; None without a preference.

        It is normalised over `mask` (bool[N], the rows that the class can use).
        """
        raise NotImplementedError

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        """Return the score of nodes with the pod placed, from amounts.

        Shape: float64[rows, copies] if `load` looks ahead over several copies, else float64[rows], or one number
        for all nodes. Results of operators on the arrays of `load` have that shape. For third-party plugins,
        float64[rows] is used for every number of copies.
        """
        raise NotImplementedError


class AdmissionPlugin:
    """Votes on the creation of a group's pods by its controller (Volcano's enqueue)."""

    def admit(self, session: View, gang: GangRecord) -> Vote:
        """Return the vote on the creation of the group's pods now."""
        raise NotImplementedError

    def admission_key(self, gang: GangRecord) -> Hashable:
        """Return the properties of a group on which the vote depends, besides its queue and minResources.

        Of groups with equal keys, queue and minResources, the first refusal decides for the rest. Without this
        method every group is voted on.
        """
        raise NotImplementedError

    def max_admissions(self, session: View, gang: GangRecord) -> int:
        """Return an upper bound on the number of equal groups that can be admitted now, one after the other."""
        raise NotImplementedError

    def why_not_admitted(self, session: View, gang: GangRecord) -> tuple[str, str] | None:
        """Return (obstacle, smallest change that would help) for a group that `admit` rejects.

        The obstacle continues "gang x waits to be admitted: ".
        """
        raise NotImplementedError

    def admitted(self, session: View, gang: GangRecord) -> None:
        """Record the admission of a group in this session."""
        raise NotImplementedError


class ReservationPlugin:
    """Votes on start reservations, and on backfill before units with a start reservation.

    Votes count as in `admit`: in a tier any REJECT decides, else any PERMIT, else the next tier votes. If all
    abstain, the policy decides.
    """

    def reserve_start(self, session: View, unit: WaitingUnit) -> Vote:
        """Return the vote on a start reservation for a unit without room, under a policy with the action `reserve`.

        PERMIT overrides `minPriority` and `minAgeSeconds`, not `depth`. Later votes do not revoke a promised start.
        """
        raise NotImplementedError

    def backfill(self, session: View, unit: WaitingUnit) -> Vote:
        """Return the vote on a start of the unit before a unit of at least its priority with a start reservation.

        By default the unit can start if it delays no reservation. With REJECT it waits; the vote is repeated in
        each cycle.
        """
        raise NotImplementedError


PROTOCOLS = (
    OrderPlugin,
    QuotaPlugin,
    EvictionPlugin,
    LifecyclePlugin,
    FilterPlugin,
    ScorePlugin,
    AdmissionPlugin,
    ReservationPlugin,
)
EXTENSION_POINTS = tuple(
    name for protocol in PROTOCOLS for name, method in vars(protocol).items() if callable(method) and name[0] != "_"
)
"""The names of all extension points."""
