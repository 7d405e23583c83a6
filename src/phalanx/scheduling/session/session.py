"""One cycle's view of the cluster: what actions and plugins ask, answered once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from phalanx.cluster.account_objects import path_fault_objects
from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.ledger import Ledger
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.resource_space import exact_sums
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Admit, Plan
from phalanx.model.resources import Requests
from phalanx.scheduling.framework.capabilities import UsageDecay
from phalanx.scheduling.framework.task_buckets import TaskBuckets
from phalanx.scheduling.framework.view import WaitingUnit
from phalanx.scheduling.gangs.priorities import Priorities
from phalanx.scheduling.gangs.quorum import QuorumRequirement, quorum_requirement
from phalanx.scheduling.placement.placer import Placer
from phalanx.scheduling.placement.topology_domains import TopologyDomains
from phalanx.scheduling.queue.demands import (
    UNBOUNDED,
    WaitReason,
)
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.unit import QueuedUnit, awaits_admission
from phalanx.scheduling.queue.unschedulable import FitError, Rank, UnitKey
from phalanx.scheduling.quota.limits import Limit
from phalanx.scheduling.quota.queue_tree import offered, usable
from phalanx.scheduling.quota.quota_check import QuotaCheck
from phalanx.scheduling.refusals.refusal import Blocked, NotAdmitted
from phalanx.scheduling.session.cycle_features import CycleFeatures
from phalanx.scheduling.session.cycle_history import CycleHistory
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.session.decisions import Decisions
from phalanx.scheduling.session.fit_errors import FitErrors
from phalanx.scheduling.session.victim_class_arrays import VictimClassArrays

if TYPE_CHECKING:
    from phalanx.scheduling.framework.plugin_runtime import PluginRuntime

T = TypeVar("T")


class Memo:
    """What was computed from demand, until demand changes. It holds over cycles."""

    def __init__(self) -> None:
        self._version = -1
        self._found: dict[Hashable, Any] = {}

    def get_or_compute(self, key: Hashable, version: int, compute: Callable[[], T]) -> T:
        if version != self._version:
            self._found.clear()
            self._version = version
        if key not in self._found:
            self._found[key] = compute()
        found: T = self._found[key]
        return found


F = TypeVar("F", bound=CyclePlugin)

# A cycle that is short of time does at least one part in so many of its work.
_LEAST_PART = 64


def _none(gang: GangRecord, account: AccountRecord | None) -> Mapping[str, int]:
    return {}


def _pass(units: list[QueuedUnit]) -> None:
    """Nobody gets a turn."""


class Session:
    """Lives for one cycle. `now` is in seconds since the epoch; `should_stop` ends the cycle between transactions
    (see `out_of_time`).

    What is decided is recorded in `decisions`, what was found to be lacking in `fit_errors`. An action tells of
    every unit that it has dealt with (`mark_attempted`), and what the unit waits for if room or a vote can help it
    (`set_unschedulable`). `disruptions` are the evictions decided for the units that wait for them.
    """

    def __init__(
        self,
        state: ClusterState,
        plugin_runtime: PluginRuntime,
        placer: Placer,
        work: SchedulingQueue,
        plan: Plan,
        now: float,
        should_stop: Callable[[], bool],
        memory: Memo,
        past: CycleHistory | None = None,
        features: CycleFeatures | None = None,
    ) -> None:
        self.state = state
        self.plugin_runtime = plugin_runtime
        self.placer = placer
        self.units: list[QueuedUnit] = []
        self.plan = plan
        self.now = now
        self._should_stop = should_stop
        # Without `allocate` only `backfill` places members of gangs: those that ask for nothing but a slot.
        self.best_effort_only = plugin_runtime.policy.places_best_effort_only
        self.attempted: set[UnitKey] = set()
        # Units of queues that keep their order: admitted or refused after the turns of the units before them.
        self.postponed_admissions: set[UnitKey] = set()
        # Units that wait for a change of their own because planning them raised.
        self.set_aside: list[UnitKey] = []
        self.unschedulable: dict[UnitKey, tuple[WaitReason, FitError]] = {}
        self.queue = work
        self._priorities = Priorities(state.gangs.composites)
        self._memory = memory
        past = past if past is not None else CycleHistory()
        self.history, self.timers, self.evictions, self.no_solutions = (
            past.history,
            past.timers,
            past.evictions,
            past.no_solutions,
        )
        self.searches = past.searches
        # Whether those have their turns that others, for whom starts are kept, have left behind.
        self.backfilling = False
        self.decisions = Decisions(state, plan, now, self.evictions)
        self.features = features if features is not None else CycleFeatures()
        self.decisions.note = self.features.note
        # Units that were refused in an earlier cycle, before anybody asked whether others might go for them.
        self.unasked: list[QueuedUnit] = []
        self.asked: set[UnitKey] = set()
        self.preempted = False
        self.disruptions: dict[UnitKey, object] = {}
        # What is above the session: giving units their turn, and who could make room for whom.
        self.walk: Callable[[list[QueuedUnit]], None] = _pass
        self.reclaimable: Callable[[GangRecord, AccountRecord | None], Mapping[str, int]] = _none
        self._past = past
        # For whoever computes something from the kinds of pods that there are.
        self.protected_pods: object = None
        self.quota_check = QuotaCheck(state.ledger, self._limits)
        network = plugin_runtime.policy.topology
        self.topology_domains = TopologyDomains(
            state.topology, placer, network.levels, network.layers, network.max_domains
        )
        self.fit_errors = FitErrors(state, plugin_runtime, placer, work, self.quota_check, self.topology_domains)
        self._totals: dict[str, tuple[int, int]] | None = None
        self._totals_version = state.version
        self._idle: tuple[int, dict[str, int]] = (-1, {})

    # what plugins ask

    def priority(self, gang: GangRecord | PodRecord) -> int:
        """A pod's priority; of a gang the group's own, else the highest among its members."""
        return self._priorities.own(gang)

    def turn_priority(self, gang: GangRecord | PodRecord) -> int:
        """With which priority it takes its turn."""
        return self._priorities.turn(gang)

    def victim_priority(self, gang: GangRecord | None, own: int) -> int:
        """What must be exceeded by whoever evicts a pod for its priority."""
        return self._priorities.victim(gang, own)

    def victim_classes(self) -> VictimClassArrays:
        """The kinds of pods that there are, as arrays."""
        return self._past.victim_classes(self.state)

    def requirement(self, gang: GangRecord) -> QuorumRequirement:
        spec = gang.spec
        assert spec is not None
        match gang.cached:
            case (known, QuorumRequirement() as need) if known is spec:
                return need
        need = quorum_requirement(gang, spec)
        gang.cached = (spec, need)
        return need

    def totals(self) -> dict[str, tuple[int, int]]:
        """resource -> (allocatable, used) over all nodes, as they were when first asked for in this cycle."""
        if self._totals is None:
            self._totals_version = self.state.version
            nodes = self.state.nodes
            allocatable, used = exact_sums(nodes.allocatable), exact_sums(nodes.used)
            self._totals = {
                name: (allocatable[column], used[column]) for column, name in enumerate(self.state.space.names)
            }
        return self._totals

    @property
    def totals_version(self) -> int:
        """As of which version of the cluster `totals` speak."""
        return self._totals_version

    def offered(self) -> Mapping[str, int]:
        """resource -> what there is to share: what nodes offer, or hold where that is more."""
        return self.memo("offered", lambda: offered(self.state))

    def usable(self) -> Mapping[str, int]:
        """The same without what no queue can have."""
        return self.memo("usable", lambda: usable(self.state))

    def forget_totals(self) -> None:
        """What is asked from now on is as of now."""
        self._totals = None

    def inqueue_resources(self) -> Mapping[str, int]:
        """What admitted groups announced in minResources and their members do not use yet."""
        return self.state.gangs.inqueue.total()

    @property
    def ledger(self) -> Ledger:
        """The accounts, up to date."""
        ledger = self.state.ledger
        ledger.refresh_sums()
        return ledger

    def memo(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` gave since what accounts ask for or hold in sum, or the cluster's size, last changed.

        Kept over cycles. Placing a pod changes neither: it holds then what it asked for before.
        """
        return self._memory.get_or_compute(key, self.state.ledger.demand_version, compute)

    @property
    def usage_decay(self) -> UsageDecay:
        """How far the policy lets what accounts have held count."""
        return self.plugin_runtime.policy.usage_decay

    def reclaimable_estimate(self, gang: GangRecord, account: AccountRecord | None = None) -> Mapping[str, int]:
        """resource -> what others hold (in one account, or at all) that they may have to give up for a group."""
        return self.reclaimable(gang, account)

    def _limits(self, account: AccountRecord) -> list[Limit]:
        found = [plugin.limit(self, account) for plugin in self.plugin_runtime.plugins("limit")]
        return [limit for limit in found if limit is not None]

    def charge_path(self, unit: GangRecord | PodRecord) -> ChargePath:
        """Who pays for a pod, or for a gang's next members."""
        if isinstance(unit, PodRecord):
            assert unit.charge_path is not None
            return unit.charge_path
        for member in unit.pending.values():
            if member.charge_path is not None:
                return member.charge_path
        assert unit.spec is not None
        return self.state.ledger.charge_path_of_group(unit.key.namespace, unit.spec.queue)

    def blocked(self, unit: GangRecord | PodRecord) -> Blocked | None:
        """What forbids the unit's charge path anything new."""
        charge_path = self.charge_path(unit)
        self.state.ledger.refresh()
        if charge_path.fault is not None:
            fault = charge_path.fault
            return Blocked(fault.code, fault.state, fault.remedy, objects=path_fault_objects(charge_path, fault))
        for plugin in self.plugin_runtime.plugins("blocked"):
            verdict = plugin.blocked(self, unit, charge_path)
            if verdict is not None:
                return Blocked(verdict.code, verdict.message, verdict.change, objects=verdict.objects)
        return None

    def recheck_at(self, unit: QueuedUnit) -> float | None:
        """When what the plugins say about a waiting unit changes by itself."""
        plugins = self.plugin_runtime.plugins("recheck_at")
        times = [
            plugin.recheck_at(self, each, self.charge_path(each)) for plugin in plugins for each in unit.members
        ]
        return min((when for when in times if when is not None and when > self.now), default=None)

    def feature(self, kind: type[F]) -> F | None:
        """Return the feature of the cycle of a class; None where it is not part of this scheduler."""
        return self.features.get(kind)

    # what actions ask

    def rank(self, gang: GangRecord | PodRecord) -> Rank:
        """The plugins' opinion on the order, first tier first."""
        return tuple([plugin.gang_order(self, gang) for plugin in self.plugin_runtime.plugins("gang_order")])

    def pending_in_order(self, gang: GangRecord) -> list[PodRecord]:
        """Pending members whom the policy's actions place, by the plugins' pod order, then index, age and name."""
        plugins = self.plugin_runtime.plugins("pod_order")
        pending: Iterable[PodRecord] = gang.pending.values()
        if self.best_effort_only:
            pending = (member for member in pending if member.pod_class.spec.best_effort)
        members = list(pending)
        if len(members) < 2:
            return members
        columns = [[plugin.pod_order(self, member) for member in members] for plugin in plugins]
        keys = list(zip(*columns, [member.order[1:] for member in members], strict=True))
        return [members[place] for place in sorted(range(len(members)), key=keys.__getitem__)]

    def task_buckets(self, gang: GangRecord) -> TaskBuckets | None:
        """Which members of a gang would rather be on one node."""
        for plugin in self.plugin_runtime.plugins("task_buckets"):
            buckets = plugin.task_buckets(self, gang)
            if buckets is not None:
                return buckets
        return None

    def is_blocked(self, unit: WaitingUnit) -> bool:
        """Return whether an account of the unit may be charged nothing new."""
        return any(self.blocked(member) for member in unit.members)

    def max_admissions(self, unit: WaitingUnit) -> int:
        """Return at most how many groups like those of the unit could be admitted now, one after the other."""
        waiting = [gang for gang in unit.gangs if awaits_admission(gang)]
        return min((self.plugin_runtime.max_admissions(self, gang) for gang in waiting), default=UNBOUNDED)

    def admission_refusal(self, gang: GangRecord) -> NotAdmitted:
        """Return why the plugins do not admit a group."""
        return NotAdmitted(*self.plugin_runtime.why_not_admitted(self, gang))

    def has_left(self, victims: Collection[str]) -> bool:
        """Return whether all pods with these uids have left their nodes."""
        return not any(uid in self.state.pods.unreleased for uid in victims)

    def is_ready(self, pod_class: ClassRecord) -> bool:
        """Return whether all that pods of a class refer to exists: volumes, claims, reservations."""
        runtime = self.plugin_runtime
        return runtime.pre_filter(pod_class) is None and runtime.unready(pod_class) is None

    def shortfall_in_sum(self, wanted: Requests, afresh: bool = False) -> Requests:
        """What the amounts exceed, per resource, that which all nodes together have idle; with what an open
        transaction has changed if `afresh`.

        The test of the coscheduling plugin before it tries a group (docs/rules/coscheduling.md, section 2). A sum
        can only say no: whether the members really fit is for the placement to find out.
        """
        if not wanted:
            return ()
        version, idle = self._idle
        if version != self.state.version or afresh:
            sums = exact_sums(self.state.nodes.idle.clip(min=0))
            idle = dict(zip(self.state.space.names, sums, strict=True))
            self._idle = (self.state.version if not afresh else -1, idle)
        return tuple((name, amount - idle.get(name, 0)) for name, amount in wanted if amount > idle.get(name, 0))

    def place(self, units: Iterable[WaitingUnit]) -> None:
        """Gives some of the units their turn, as the action `allocate` does."""
        ours = {id(unit): unit for unit in self.units}
        self.walk([ours[id(unit)] for unit in units if id(unit) in ours])

    def out_of_time(self) -> bool:
        """Whether the cycle is to end here; asked between transactions.

        Every cycle does at least a part of what there is to do before it looks at the clock. So it gets on even if
        putting everything in order took all the time, and does not put it in order too often.
        """
        return self.decisions.steps * _LEAST_PART > len(self.units) and self._should_stop()

    def count_step(self) -> None:
        """Something was done that the next cycle will not have to do again."""
        self.decisions.steps += 1

    # what actions decide

    def mark_attempted(self, unit: QueuedUnit) -> None:
        """The unit had its turn."""
        self.attempted.add(unit.key)
        self.decisions.steps += 1

    def set_unschedulable(self, unit: QueuedUnit, demand: WaitReason, fit_error: FitError) -> None:
        """The unit could not get what it asks for; it wakes when it may."""
        self.unschedulable[unit.key] = (demand, fit_error)

    def refuse(self, unit: QueuedUnit, reason: WaitReason, fit_error: FitError) -> None:
        """Let the unit wait for the reason, and set the verdicts that say why it was refused."""
        self.decisions.explain(unit, fit_error.facts)
        self.unschedulable[unit.key] = (reason, fit_error)

    def admit(self, gang: GangRecord) -> None:
        self.decisions.steps += 1
        self.state.gangs.admit(gang.key)
        self.plan.admissions.append(Admit(gang.key))
        for plugin in self.plugin_runtime.plugins("admitted"):
            plugin.admitted(self, gang)
