"""What a plugin is: a class whose methods are the extension points."""

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
from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.colocation import Huddles
from phalanx.scheduling.framework.inter_pod_rules import NO_RULES, PeerRules
from phalanx.scheduling.framework.load import Load
from phalanx.scheduling.framework.view import View
from phalanx.scheduling.quota.limits import Ceiling


class Spared(msgspec.Struct, frozen=True):
    """Why a pod may not be evicted, a phrase that goes on from "it "; `until` is when that ends by itself (seconds
    since the epoch), None if it does not. With `own` its owner says so: then it counts as far as its accounts let
    their pods protect themselves (`eviction/ownwords.py`)."""

    why: str
    until: float | None = None
    own: bool = False


class Outcast(msgspec.Struct, frozen=True):
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


class Plugin:
    """Override the methods on which the plugin has an opinion; the framework calls only those.

    One instance lives as long as the policy that names it. A plugin keeps no reference to the cluster between
    calls; it gets everything as arguments and must be deterministic.
    """

    name: ClassVar[str]
    arguments: ClassVar[tuple[str, ...]] = ()
    """The argument keys that the plugin accepts; a key that ends in `*` stands for a prefix."""
    without_effect: ClassVar[tuple[str, ...]] = ()
    """Those of them that it accepts but does not act on; whoever uses one is told so."""
    quiet: frozenset[str] = frozenset()
    """Extension points at which it has no opinion with the arguments that it got."""
    stocks: frozenset[str] = frozenset()
    """The stocks that keep pods from nodes where this plugin is in the policy."""
    peers: PeerRules = NO_RULES
    """What it makes of spread constraints, affinity and anti-affinity between pods."""
    remarks: tuple[str, ...] = ()
    """What whoever wrote the arguments should know, a sentence each."""

    def __init__(self, arguments: Arguments) -> None:
        """Raises PolicyError (through `arguments`) for values that it cannot use."""

    # order: keys are compared plugin by plugin in the order of the tiers

    separates_bands: ClassVar[bool] = False
    """Whether nothing with a larger `gang_order` goes before the surplus of a gang with a smaller one."""
    order_drifts: ClassVar[bool] = False
    """Whether `gang_order` of a gang may change although nothing about the gang itself has changed."""

    def gang_order(self, session: View, gang: GangRecord | PodRecord) -> SortKey:
        """Which gang (or pod on its own) comes first."""
        raise NotImplementedError

    def queue_order(self, session: View, account: AccountRecord) -> SortKey:
        """Which of sibling queues comes first; asked again after every allocation, and only ever grows by one."""
        raise NotImplementedError

    def tenants(self, session: View, payer: ChargePath) -> tuple[AccountRecord, ...]:
        """The accounts within a queue that take turns, between priority and all other keys; outermost first."""
        raise NotImplementedError

    def tenant_order(self, session: View, account: AccountRecord) -> SortKey:
        """Which of them comes first, as `queue_order`."""
        raise NotImplementedError

    def pod_order(self, session: View, pod: PodRecord) -> SortKey:
        """Which member of a gang comes first."""
        raise NotImplementedError

    def huddles(self, session: View, gang: GangRecord) -> Huddles | None:
        """Which members of a gang would rather be on one node; None if it is all the same. The first plugin that
        says something is followed."""
        raise NotImplementedError

    # accounts

    def ceiling(self, session: View, account: AccountRecord) -> Ceiling | None:
        """What the account may hold at most in this cycle; all ceilings of all accounts that pay must hold."""
        raise NotImplementedError

    def deserved(self, session: View, account: AccountRecord) -> Mapping[str, int] | None:
        """What a queue deserves now, for those who ask; None if the plugin does not say."""
        raise NotImplementedError

    def entitled(self, session: View, account: AccountRecord) -> Mapping[str, int] | None:
        """What it would deserve if every queue asked for everything: what it holds above that is borrowed."""
        raise NotImplementedError

    def prospect(
        self, session: View, account: AccountRecord, asker: AccountRecord, wanted: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        """What a queue would deserve if another (or it itself) asked for more; where nobody implements this it is
        what it deserves now."""
        raise NotImplementedError

    def held(self, session: View, unit: GangRecord | PodRecord, payer: ChargePath) -> Verdict | None:
        """Why nothing new may be charged to the payer now, whatever its size; None if it may."""
        raise NotImplementedError

    def until(self, session: View, unit: GangRecord | PodRecord, payer: ChargePath) -> float | None:
        """When, in seconds since the epoch, what the plugin says about a waiting unit changes by itself."""
        raise NotImplementedError

    # evictions

    def spares(self, session: View, record: PodRecord) -> Spared | None:
        """Why a pod may not be evicted for others now, whoever asks; None if the plugin has no objection.

        Any objection of any plugin in any tier holds.
        """
        raise NotImplementedError

    def victim_order(self, session: View, record: PodRecord) -> SortKey:
        """Among victims that are equal in what they borrow and in priority: who goes first."""
        raise NotImplementedError

    def outcasts(self, session: View) -> Iterable[Outcast]:
        """Who is to leave its node now, most urgent first, though nobody needs the room.

        Whoever is spared, protected by a budget or needed by its gang stays. Each is judged before the next is
        asked for: by then it counts as terminating, or it stays.
        """
        raise NotImplementedError

    # time

    def wakes(self, session: View) -> float | None:
        """When, in seconds since the epoch, a cycle is wanted although nothing may have happened by then."""
        raise NotImplementedError

    def season(self, now: float) -> Hashable:
        """Takes note of the time before a cycle. As long as the answer stays equal, the plugin's `filter`,
        `explain` and `preference` give the same for the same nodes."""
        raise NotImplementedError

    # nodes: once per pod class, over many rows at a time

    @property
    def wide(self) -> bool:
        """Whether its score of a node depends on what other nodes hold: then nodes are scored anew after each
        pod."""
        return False

    def equip(self, nodes: NodeTable) -> None:
        """Tells the stocks of a cluster how to choose, before anything is placed under this policy."""
        raise NotImplementedError

    def filter(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        """bool[rows]: which nodes the class may use; all filters must agree.

        May depend on labels, taints and liveness (what `nodes.relabelled` records) and on the `season`; not on
        amounts, nor on which pods are where.
        """
        raise NotImplementedError

    def consents(self, cls: ClassRecord, nodes: NodeTable, row: int) -> bool:
        """Whether a pod of the class may be put on a row that was chosen for it. A plugin that says no says so in
        `filter` from then on."""
        raise NotImplementedError

    def explain(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        """(reason in kube-scheduler's words, bool[rows] kept out for it): what `filter` says, taken apart."""
        raise NotImplementedError

    def refuse(self, cls: ClassRecord) -> str | None:
        """Why the class can be placed nowhere whatever the nodes are like; None if it can."""
        raise NotImplementedError

    def preference(self, cls: ClassRecord, nodes: NodeTable, mask: BoolArray) -> FloatArray | None:
        """float[N] from what `filter` may depend on, normalised over `mask`; None if the class has none."""
        raise NotImplementedError

    def room(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> IntArray:
        """int64[rows]: at most how many more copies each row takes, from what its nodes have idle; where that is 0,
        `explain` says why."""
        raise NotImplementedError

    def score(self, cls: ClassRecord, load: Load) -> FloatArray | float:
        """How good a node is with the pod on it, from amounts; shaped like `load` (rows, or rows by copies)."""
        raise NotImplementedError

    # admission

    def admit(self, session: View, gang: GangRecord) -> Vote:
        """Whether the controller of a group may create its pods now."""
        raise NotImplementedError

    def admission_key(self, gang: GangRecord) -> Hashable:
        """What of a group the vote depends on besides its queue and minResources.

        Groups that are equal in all of this are asked about in order until one is refused. Without this method
        every group is asked about.
        """
        raise NotImplementedError

    def admission_room(self, session: View, gang: GangRecord) -> int:
        """At most how many groups like this one could be permitted now, one after the other."""
        raise NotImplementedError

    def objection(self, session: View, gang: GangRecord) -> tuple[str, str] | None:
        """(what is in the way, the smallest change that would help) where `admit` rejects the group; the first goes
        on from "gang x waits to be admitted: "."""
        raise NotImplementedError

    def admitted(self, session: View, gang: GangRecord) -> None:
        """A group was admitted in this session."""
        raise NotImplementedError


def overrides(plugin: Plugin, point: str) -> bool:
    """Whether the plugin's class implements an extension point itself."""
    return getattr(type(plugin), point) is not getattr(Plugin, point)
