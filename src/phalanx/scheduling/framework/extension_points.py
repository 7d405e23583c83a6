"""What plugins may have an opinion on, subject by subject: the extension points, their arguments and results."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.model.decisions import EvictionReason
from phalanx.model.verdict import Verdict
from phalanx.scheduling.framework.load import Load
from phalanx.scheduling.framework.node_backoff import NodeBackoff
from phalanx.scheduling.framework.task_buckets import TaskBuckets
from phalanx.scheduling.framework.view import View, WaitingUnit
from phalanx.scheduling.quota.limits import Limit


class EvictVeto(msgspec.Struct, frozen=True):
    """Why a pod may not be evicted, a phrase that goes on from "it "; `until` is when that ends by itself (seconds
    since the epoch), None if it does not. With `own` its owner says so: then it counts as far as its accounts let
    their pods protect themselves (`preemption/rules/self_protection.py`)."""

    why: str
    until: float | None = None
    own: bool = False


class Victim(msgspec.Struct, frozen=True):
    """A pod that is to leave its node although nobody needs the room. `message` is one sentence about why.

    Where its gang cannot spare it, the gang leaves with it if `whole`, else the pod stays.
    """

    record: PodRecord
    reason: EvictionReason
    message: str
    whole: bool = False


SortKey = Any
"""Anything that compares with its own kind; smaller goes first."""


class Vote(enum.IntEnum):
    """A three-valued opinion: any REJECT of a tier decides it, else any PERMIT, else the next tier is asked."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class OrderPlugin:
    """Who comes first. Keys are compared plugin by plugin in the order of the tiers; the smaller goes first."""

    separates_bands: ClassVar[bool] = False
    """Whether nothing with a larger `gang_order` goes before the surplus of a gang with a smaller one."""
    order_drifts: ClassVar[bool] = False
    """Whether `gang_order` of a gang may change although nothing about the gang itself has changed."""

    def queue_order(self, session: View, account: AccountRecord) -> SortKey:
        """Which of sibling queues comes first; asked again after every allocation, and only ever grows by one."""
        raise NotImplementedError

    def subqueues(self, session: View, charge_path: ChargePath) -> tuple[AccountRecord, ...]:
        """The accounts within a queue that take turns, between priority and all other keys; outermost first."""
        raise NotImplementedError

    def subqueue_order(self, session: View, account: AccountRecord) -> SortKey:
        """Which of them comes first, as `queue_order`."""
        raise NotImplementedError

    def gang_order(self, session: View, gang: GangRecord | PodRecord) -> SortKey:
        """Which gang (or pod on its own) comes first."""
        raise NotImplementedError

    def pod_order(self, session: View, pod: PodRecord) -> SortKey:
        """Which member of a gang comes first."""
        raise NotImplementedError

    def task_buckets(self, session: View, gang: GangRecord) -> TaskBuckets | None:
        """Which members of a gang would rather be on one node; None if it is all the same. The first plugin that
        says something is followed."""
        raise NotImplementedError


class QuotaPlugin:
    """What accounts (queues, quotas, namespaces, users) may hold: resource -> whole number of its smallest unit
    (millicores, bytes, else pieces).
    """

    reclaim_level: int | None = None
    """How many levels above its own a queue is looked at when others take back what is theirs; None: all."""

    def limit(self, session: View, account: AccountRecord) -> Limit | None:
        """What the account may hold at most in this cycle; all limits of all accounts that pay hold."""
        raise NotImplementedError

    def deserved(self, session: View, account: AccountRecord) -> Mapping[str, int] | None:
        """What a queue deserves now, for those who ask; None if the plugin does not say."""
        raise NotImplementedError

    def nominal_quota(self, session: View, account: AccountRecord) -> Mapping[str, int] | None:
        """What it would deserve if every queue asked for everything: what it holds above that is borrowed."""
        raise NotImplementedError

    def declared_resources(self, session: View, account: AccountRecord) -> frozenset[str]:
        """The resources of which a queue, or one below it, says itself what it deserves. Without this method that
        is all of which any queue deserves something."""
        raise NotImplementedError

    def deserved_with_request(
        self, session: View, account: AccountRecord, asker: AccountRecord, wanted: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        """What a queue would deserve if another (or it itself) asked for more; where nobody implements this it is
        what it deserves now."""
        raise NotImplementedError

    def runtime_quota(self, session: View, account: AccountRecord) -> Mapping[str, int]:
        """What a quota that lends and borrows may use at this moment (Koordinator's runtime quota)."""
        raise NotImplementedError

    def blocked(self, session: View, unit: GangRecord | PodRecord, charge_path: ChargePath) -> Verdict | None:
        """Why nothing new may be charged along the path now, whatever its size; None if it may."""
        raise NotImplementedError

    def recheck_at(self, session: View, unit: GangRecord | PodRecord, charge_path: ChargePath) -> float | None:
        """When, in seconds since the epoch, what the plugin says about a waiting unit changes by itself."""
        raise NotImplementedError


class EvictionPlugin:
    """Who may be evicted, who goes first, and who should leave."""

    keeps_budgets: ClassVar[bool] = False
    """Whether no set of victims may break a PodDisruptionBudget."""
    honours_owners: ClassVar[bool] = False
    """Whether it vetoes for the owner of a pod with a cooldown or a disruption budget (`EvictVeto.own`)."""

    def evict_veto(self, session: View, record: PodRecord) -> EvictVeto | None:
        """Why a pod may not be evicted for others now, whoever asks; None if the plugin has no objection.

        Any objection of any plugin in any tier holds.
        """
        raise NotImplementedError

    def victim_order(self, session: View, record: PodRecord) -> SortKey:
        """Among victims that are equal in what they borrow and in priority: who goes first."""
        raise NotImplementedError

    def victims(self, session: View) -> Iterable[Victim]:
        """Who is to leave its node now, most urgent first, though nobody needs the room.

        Whoever is vetoed, protected by a budget or needed by its gang stays. Each is judged before the next is
        asked for: by then it counts as terminating, or it stays.
        """
        raise NotImplementedError


class LifecyclePlugin:
    """When the plugin is told of its cluster, and when it wants to be asked again."""

    def configure(self, nodes: NodeTable, backoff: NodeBackoff) -> None:
        """Before anything is placed under this policy: tells the allocators of a cluster how to choose, and takes
        what outlasts the policy, such as which nodes are left alone for a while because they refused pods."""
        raise NotImplementedError

    def next_wake(self, session: View) -> float | None:
        """When, in seconds since the epoch, a cycle is wanted although nothing may have happened by then."""
        raise NotImplementedError

    def time_key(self, now: float) -> Hashable:
        """Takes note of the time before a cycle. As long as the answer stays equal, the plugin's `filter`,
        `explain` and `static_score` give the same for the same nodes."""
        raise NotImplementedError


class FilterPlugin:
    """Which nodes a class of equal pods may use. Asked once for a class and many nodes: `rows` are places in the
    arrays of `nodes`, and an answer for rows has one entry for each, in their order.
    """

    def pre_filter(self, pod_class: ClassRecord) -> str | None:
        """Why the class can be placed nowhere whatever the nodes are like; None if it can."""
        raise NotImplementedError

    def filter(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        """bool[rows]: which nodes the class may use; all filters must agree.

        May depend on labels, taints and liveness (what `nodes.relabelled` records) and on the `time_key`; not on
        amounts, nor on which pods are where.
        """
        raise NotImplementedError

    def max_copies(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> IntArray:
        """int64[rows]: at most how many more copies each row takes, from what its nodes have idle; where that is 0,
        `explain` says why."""
        raise NotImplementedError

    def pre_bind_check(self, pod_class: ClassRecord, nodes: NodeTable, row: int) -> bool:
        """Whether a pod of the class may be put on a row that was chosen for it. A plugin that says no says so in
        `filter` from then on."""
        raise NotImplementedError

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        """(reason in kube-scheduler's words, bool[rows] kept out for it): what `filter` says, taken apart."""
        raise NotImplementedError


class ScorePlugin:
    """How good nodes are for a class of equal pods. Plugins are added up; by custom each gives 0 to 100, times its
    weight.
    """

    @property
    def depends_on_other_nodes(self) -> bool:
        """Whether its score of a node depends on what other nodes hold: then nodes are scored anew after each
        pod."""
        return False

    def static_score(self, pod_class: ClassRecord, nodes: NodeTable, mask: BoolArray) -> FloatArray | None:
        """float64[N], for each row of `nodes`, from what `filter` may use, normalised over `mask` (bool[N], the
        rows that the class may use); None if it is all the same."""
        raise NotImplementedError

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        """How good a node is with the pod on it, from amounts: float64[rows, copies] where `load` looks ahead over
        so many copies, else float64[rows], or one number for all. Whatever is made of the arrays of `load` has that
        shape. Of a plugin that is not ours float64[rows] is taken for every number of copies."""
        raise NotImplementedError


class AdmissionPlugin:
    """Whether the controller of a group may create its pods (Volcano's enqueue)."""

    def admit(self, session: View, gang: GangRecord) -> Vote:
        """Whether the controller of a group may create its pods now."""
        raise NotImplementedError

    def admission_key(self, gang: GangRecord) -> Hashable:
        """What of a group the vote depends on besides its queue and minResources.

        Groups that are equal in all of this are asked about in order until one is refused. Without this method
        every group is asked about.
        """
        raise NotImplementedError

    def max_admissions(self, session: View, gang: GangRecord) -> int:
        """At most how many groups like this one could be permitted now, one after the other."""
        raise NotImplementedError

    def why_not_admitted(self, session: View, gang: GangRecord) -> tuple[str, str] | None:
        """(what is in the way, the smallest change that would help) where `admit` rejects the group; the first goes
        on from "gang x waits to be admitted: "."""
        raise NotImplementedError

    def admitted(self, session: View, gang: GangRecord) -> None:
        """A group was admitted in this session."""
        raise NotImplementedError


class ReservationPlugin:
    """Which units get a start reserved, and which may start before those (backfill).

    Votes count as in `admit`: of a tier any REJECT decides, else any PERMIT, else the next tier is asked. Where all
    abstain the policy decides.
    """

    def reserve_start(self, session: View, unit: WaitingUnit) -> Vote:
        """Return whether a start is reserved for a unit that has no room, under a policy with the action `reserve`.

        PERMIT sets its `minPriority` and `minAgeSeconds` aside, not its `depth`. A start that is promised stays
        promised, whatever is voted later.
        """
        raise NotImplementedError

    def backfill(self, session: View, unit: WaitingUnit) -> Vote:
        """Return whether a unit may start before a unit of at least its priority whose start is reserved.

        By default it may, where it delays none. With REJECT it waits, and is asked about again in each cycle.
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
