"""Session: one cycle's view of the cluster for actions and plugins; results are cached."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
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
    Demand,
    WaitReason,
)
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.unit import QueuedUnit, awaits_admission
from phalanx.scheduling.queue.unschedulable import FitError, Rank, UnitKey
from phalanx.scheduling.quota.limits import Limit
from phalanx.scheduling.quota.queue_tree import offered, usable
from phalanx.scheduling.quota.quota_check import QuotaCheck, UnlimitedAccounts
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
    """Values computed from demand, valid until the demand changes, and accounts without limits. The cache is
    preserved across cycles."""

    def __init__(self) -> None:
        self.unlimited = UnlimitedAccounts()
        self._version = -1
        self._values: dict[Hashable, Any] = {}

    def get_or_compute(self, key: Hashable, version: int, compute: Callable[[], T]) -> T:
        if version != self._version:
            self._values.clear()
            self._version = version
        if key not in self._values:
            self._values[key] = compute()
        value: T = self._values[key]
        return value


F = TypeVar("F", bound=CyclePlugin)

# A cycle without time left still does at least 1 / _LEAST_PART of its work.
_LEAST_PART = 64


def _none(session: Session, gang: GangRecord, account: AccountRecord | None) -> Mapping[str, int]:
    return {}


def _pass(session: Session, units: list[QueuedUnit]) -> None:
    """Default of `walk`: give no unit a turn."""


def reference_to(session: Session) -> Callable[[], Session]:
    """Return a function that returns the session, for objects that the session itself keeps.

    So a session has no reference cycle, and its objects are freed at its end without a garbage collection.
    """
    reference = weakref.ref(session)

    def get_session() -> Session:
        session = reference()
        assert session is not None  # an object of a session is used by owners of the session only
        return session

    return get_session


def _limits_in(session: Session) -> Callable[[AccountRecord], list[Limit]]:
    """Return the function of the limits of an account."""
    get_session = reference_to(session)

    def limits(account: AccountRecord) -> list[Limit]:
        session = get_session()
        plugins = session.plugin_runtime.plugins("limit")
        limits = [limit for plugin in plugins if (limit := plugin.limit(session, account)) is not None]
        if not limits and all(plugin.limits_by_declaration for plugin in plugins):
            session.unlimited.add(account, session.state.ledger.rebuilds)
        return limits

    return limits


class Session:
    """State of one cycle. `now` is in seconds since the epoch; `should_stop` ends the cycle between transactions
    (see `out_of_time`).

    Decisions are recorded in `decisions`, refusals in `fit_errors`. An action calls `mark_attempted` for every unit
    that it has handled, and `set_unschedulable` for units that room or a vote can help. `disruptions` are the
    decided evictions by waiting preemptor.
    """

    def __init__(
        self,
        state: ClusterState,
        plugin_runtime: PluginRuntime,
        placer: Placer,
        work: SchedulingQueue,
        plan: Plan,
        now: int,
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
        # Without `allocate` only `backfill` places gang members: those without resource requests.
        self.best_effort_only = plugin_runtime.policy.places_best_effort_only
        self.attempted: set[UnitKey] = set()
        # Units of fifo queues: admitted or refused after the turns of the units before them.
        self.postponed_admissions: set[UnitKey] = set()
        # Units whose planning raised an exception; they wait for a change of their own.
        self.set_aside: list[UnitKey] = []
        self.unschedulable: dict[UnitKey, tuple[WaitReason, FitError]] = {}
        self.queue = work
        self._priorities = Priorities(state.gangs.composites)
        self._memory = memory
        past = past if past is not None else CycleHistory()
        self.history, self.timers, self.evictions = past.history, past.timers, past.evictions
        self.failed_evictions, self.failed_placements = past.failed_evictions, past.failed_placements
        self.searches, self.share_pressures = past.searches, past.share_pressures
        # Whether the turns after the first unit with a start reservation have begun.
        self.backfilling = False
        self.decisions = Decisions(state, plan, now, self.evictions)
        self.features = features if features is not None else CycleFeatures()
        self.decisions.note = self.features.note
        # Units that were refused in an earlier cycle before a search for victims.
        self.unasked: list[QueuedUnit] = []
        self.asked: set[UnitKey] = set()
        self.preempted = False
        # Work of this cycle's searches for placements, in checked nodes, and the part of it for repair moves.
        self.search_work = self.repair_work = 0
        # `search_work` at which placements are no longer searched beyond the usual order; None for no limit.
        self._search_limit: int | None = None
        self.disruptions: dict[UnitKey, object] = {}
        # Functions of higher layers: turns of units, and the estimate of reclaimable amounts.
        self.walk: Callable[[Session, list[QueuedUnit]], None] = _pass
        self.reclaimable: Callable[[Session, GangRecord, AccountRecord | None], Mapping[str, int]] = _none
        self._past = past
        # Cache for computations over the kinds of pods.
        self.protected_pods: object = None
        self.unlimited = memory.unlimited
        self.quota_check = QuotaCheck(
            state.ledger,
            _limits_in(self),
            unlimited=memory.unlimited,
            nodes_come=plugin_runtime.policy.requests_nodes,
        )
        network = plugin_runtime.policy.topology
        self.topology_domains = TopologyDomains(
            state.topology, placer, network.levels, network.layers, network.max_domains
        )
        self.fit_errors = FitErrors(state, plugin_runtime, placer, work, self.quota_check, self.topology_domains)
        self._totals: dict[str, tuple[int, int]] | None = None
        self._totals_version = state.version
        self._idle: tuple[int, dict[str, int]] = (-1, {})

    # queries of plugins

    def priority(self, gang: GangRecord | PodRecord) -> int:
        """Return a pod's priority; of a gang the group's own, else the highest of its members."""
        return self._priorities.own(gang)

    def turn_priority(self, gang: GangRecord | PodRecord) -> int:
        """Return the priority of a gang or pod for its turn."""
        return self._priorities.turn(gang)

    def unit_priority(self, unit: QueuedUnit) -> int:
        """Return the lowest turn priority of the members of a unit."""
        if unit.pod is not None:
            return self._priorities.turn(unit.pod)
        return min([self.turn_priority(gang) for gang in unit.gangs])

    def victim_priority(self, gang: GangRecord | None, own: int) -> int:
        """Return the priority that a preemptor of the pod must exceed."""
        return self._priorities.victim(gang, own)

    def victim_classes(self) -> VictimClassArrays:
        """Return the classes of placed pods as arrays."""
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
        """Return (allocatable, used) of all nodes by resource, as of the first call in this cycle."""
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
        """Version of the cluster to which `totals` belongs."""
        return self._totals_version

    def offered(self) -> Mapping[str, int]:
        """Return the shareable amounts by resource: allocatable of nodes, or usage where it is larger."""
        return self.memo(offered, lambda: offered(self.state))

    def usable(self) -> Mapping[str, int]:
        """Return the amounts that queues can share by resource, without nodes and usage outside of all queues."""
        return self.memo(usable, lambda: usable(self.state))

    def forget_totals(self) -> None:
        """Recompute `totals` at its next call."""
        self._totals = None

    def inqueue_resources(self) -> Mapping[str, int]:
        """Return the minResources of admitted groups that their members do not use yet, by resource."""
        return self.state.gangs.inqueue.total()

    @property
    def ledger(self) -> Ledger:
        """The accounts, up to date."""
        ledger = self.state.ledger
        ledger.refresh_sums()
        return ledger

    def memo(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the cached result of `compute` since the last change of total demand or cluster size.

        The cache is preserved across cycles. A placement does not invalidate it: pending amounts become used ones.
        """
        return self._memory.get_or_compute(key, self.state.ledger.demand_version, compute)

    @property
    def usage_decay(self) -> UsageDecay:
        """The policy's decay of past usage."""
        return self.plugin_runtime.policy.usage_decay

    def reclaimable_estimate(self, gang: GangRecord, account: AccountRecord | None = None) -> Mapping[str, int]:
        """Return the amounts by resource that can be reclaimed for a group (in one account, or in all)."""
        return self.reclaimable(self, gang, account)

    def charge_path(self, unit: GangRecord | PodRecord) -> ChargePath:
        """Return the charge path of a pod, or of a gang's next members."""
        if isinstance(unit, PodRecord):
            assert unit.charge_path is not None
            return unit.charge_path
        for member in unit.pending.values():
            if member.charge_path is not None:
                return member.charge_path
        assert unit.spec is not None
        return self.state.ledger.charge_path_of_group(unit.key.namespace, unit.spec.queue)

    def blocked(self, unit: GangRecord | PodRecord) -> Blocked | None:
        """Return why no new pod can be charged to the unit's charge path; None if one can."""
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

    @contextmanager
    def searches_within(self, work: int | None) -> Iterator[None]:
        """Limit the searches for placements beyond the usual order to `work` checked nodes; None for no limit."""
        former, self._search_limit = self._search_limit, None if work is None else self.search_work + work
        try:
            yield
        finally:
            self._search_limit = former

    @property
    def searched_enough(self) -> bool:
        """Whether the limit of searches for placements is reached."""
        return self._search_limit is not None and self.search_work >= self._search_limit

    def recheck_at(self, unit: QueuedUnit) -> float | None:
        """Return the time at which the plugins' results for a waiting unit change; None if never."""
        plugins = self.plugin_runtime.plugins("recheck_at")
        times = [
            plugin.recheck_at(self, member, self.charge_path(member))
            for plugin in plugins
            for member in unit.members
        ]
        return min((when for when in times if when is not None and when > self.now), default=None)

    def feature(self, kind: type[F]) -> F | None:
        """Return the feature of a class; None if this scheduler does not have it."""
        return self.features.get(kind)

    # queries of actions

    def rank(self, gang: GangRecord | PodRecord) -> Rank:
        """Return the sort keys of all plugins, first tier first."""
        return tuple([plugin.gang_order(self, gang) for plugin in self.plugin_runtime.plugins("gang_order")])

    def pending_in_order(self, gang: GangRecord) -> list[PodRecord]:
        """Return pending members that the policy's actions place, by the plugins' pod order, then index, age and
        name.
        """
        plugins = self.plugin_runtime.plugins("pod_order")
        pending: Iterable[PodRecord] = gang.pending.values()
        if self.best_effort_only:
            pending = (member for member in pending if member.pod_class.spec.best_effort)
        members = list(pending)
        if len(members) < 2:
            return members
        pods = [member.pod for member in members]
        columns: list[list[Any]] = [[plugin.pod_order(self, member) for member in members] for plugin in plugins]
        columns += [pod.index for pod in pods], [pod.created for pod in pods]
        # Mostly, members differ only by name, and sorting by one column is several times as fast as by tuples.
        columns = [column for column in columns if column.count(column[0]) < len(column)]
        names = [pod.name for pod in pods]
        keys = list(zip(*columns, names, strict=True)) if columns else names
        return [members[place] for place in sorted(range(len(members)), key=keys.__getitem__)]

    def task_buckets(self, gang: GangRecord) -> TaskBuckets | None:
        """Return the members of a gang that prefer a common node; None without a preference."""
        for plugin in self.plugin_runtime.plugins("task_buckets"):
            buckets = plugin.task_buckets(self, gang)
            if buckets is not None:
                return buckets
        return None

    def is_blocked(self, unit: WaitingUnit) -> bool:
        """Return whether an account of the unit is blocked."""
        return any(self.blocked(member) for member in unit.members)

    def max_admissions(self, unit: WaitingUnit) -> int:
        """Return an upper bound on the number of groups like those of the unit that can be admitted now."""
        waiting = [gang for gang in unit.gangs if awaits_admission(gang)]
        return min((self.plugin_runtime.max_admissions(self, gang) for gang in waiting), default=UNBOUNDED)

    def admission_refusal(self, gang: GangRecord) -> NotAdmitted:
        """Return why the plugins do not admit a group."""
        return NotAdmitted(*self.plugin_runtime.why_not_admitted(self, gang))

    def has_left(self, victims: Collection[str]) -> bool:
        """Return whether all pods with these uids have left their nodes."""
        return not any(uid in self.state.pods.unreleased for uid in victims)

    def bound_beside_nominations(self, unit: WaitingUnit, wanted: Demand) -> int:
        """Return the upper bound of the demand without the unit's own nominations: their room and quota count as
        used."""
        pods = [unit.pod] if unit.pod is not None else []
        pods += [pod for gang in unit.gangs for pod in (*gang.pending.values(), *gang.starting_placeholders)]
        transaction = self.state.transaction()
        transaction.lift([pod for pod in pods if pod.nomination is not None])
        try:
            return wanted.upper_bound(self)
        finally:
            transaction.rollback()

    def is_ready(self, pod_class: ClassRecord) -> bool:
        """Return whether all volumes, claims and reservations that pods of a class refer to exist."""
        runtime = self.plugin_runtime
        return runtime.pre_filter(pod_class) is None and runtime.unready(pod_class) is None

    def shortfall_in_sum(self, wanted: Requests, afresh: bool = False) -> Requests:
        """Return the amounts per resource that exceed the idle sum of all nodes.

        With `afresh`, changes of an open transaction count. This is the check of the coscheduling plugin before it
        tries a group (docs/rules/coscheduling.md, section 2). A sufficient sum does not prove that the members fit;
        the placement decides that.
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
        """Give units their turn, as the action `allocate` does."""
        units_by_id = {id(unit): unit for unit in self.units}
        self.walk(self, [units_by_id[id(unit)] for unit in units if id(unit) in units_by_id])

    def out_of_time(self) -> bool:
        """Return whether the cycle ends here; called between transactions.

        Every cycle does a part of its work before it reads the clock. It thus makes progress even if sorting took
        all the time, and sorting is not repeated too often.
        """
        return self.decisions.steps * _LEAST_PART > len(self.units) and self._should_stop()

    def count_step(self) -> None:
        """Count work that the next cycle need not repeat."""
        self.decisions.steps += 1

    # decisions of actions

    def mark_attempted(self, unit: QueuedUnit) -> None:
        """Record that the unit had its turn."""
        self.attempted.add(unit.key)
        self.decisions.steps += 1

    def set_unschedulable(self, unit: QueuedUnit, demand: WaitReason, fit_error: FitError) -> None:
        """Record that the unit's demand does not fit; the queue activates it after a relevant change."""
        self.unschedulable[unit.key] = (demand, fit_error)

    def refuse(self, unit: QueuedUnit, reason: WaitReason, fit_error: FitError) -> None:
        """Record the unit's wait reason, and set the verdicts of the refusal."""
        self.decisions.explain(unit, fit_error.facts)
        self.unschedulable[unit.key] = (reason, fit_error)

    def admit(self, gang: GangRecord) -> None:
        self.decisions.steps += 1
        self.state.gangs.admit(gang.key, self.now)
        self.plan.admissions.append(Admit(gang.key))
        for plugin in self.plugin_runtime.plugins("admitted"):
            plugin.admitted(self, gang)
