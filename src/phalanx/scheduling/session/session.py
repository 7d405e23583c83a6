"""One cycle's view of the cluster: what actions and plugins ask, answered once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.ledger import Ledger
from phalanx.cluster.pods.nominations import Nomination
from phalanx.cluster.pods.occupancy import binding_writes
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.resource_space import exact_sums
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Admit, Bind, Evict, EvictionReason, Nominate, Plan
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark
from phalanx.model.resources import Requests
from phalanx.model.verdict import GangVerdict, PodVerdict, Verdict
from phalanx.scheduling.diagnosis.domain_shortage import no_room_near
from phalanx.scheduling.diagnosis.shortage import Shortage, shortage
from phalanx.scheduling.diagnosis.verdicts import no_room_for_pod, over_ceiling_for_pod
from phalanx.scheduling.framework.capabilities import UsageDecay
from phalanx.scheduling.framework.colocation import ColocationGroups
from phalanx.scheduling.framework.view import WaitingUnit
from phalanx.scheduling.gangs.priorities import Priorities
from phalanx.scheduling.gangs.quorum import QuorumRequirement, joining_mark, quorum_requirement
from phalanx.scheduling.placement.placer import Placer
from phalanx.scheduling.placement.topology_domains import TopologyDomains
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.signatures import (
    UNBOUNDED,
    AdmissionSignature,
    FifoBlocked,
    GroupTreeSignature,
    NominatedSignature,
    PodSignature,
    QuotaBlocked,
    SchedulingSignature,
    helped_by_placements,
)
from phalanx.scheduling.queue.unit import QueuedUnit, awaits_admission
from phalanx.scheduling.queue.unschedulable import FitError, Rank, UnitKey
from phalanx.scheduling.quota.limits import Blocked, Limit, OverQuota
from phalanx.scheduling.quota.quota_check import QuotaCheck
from phalanx.scheduling.session.cycle_history import CycleHistory
from phalanx.scheduling.session.memo import Memo

if TYPE_CHECKING:
    from phalanx.scheduling.framework.pipeline import Pipeline

T = TypeVar("T")

# A cycle that is short of time does at least one part in so many of its work.
_LEAST_PART = 64


def _none(gang: GangRecord, account: AccountRecord | None) -> Mapping[str, int]:
    return {}


def _pass(units: list[QueuedUnit]) -> None:
    """Nobody gets a turn."""


class Session:
    """Lives for one cycle. `now` is in seconds since the epoch; `should_stop` ends the cycle between transactions
    (see `out_of_time`).

    Decisions are recorded through `bind`, `admit`, `judge_gang` and `judge_pod`; the plan is their sum. An action
    tells of every unit that it has dealt with (`saw`), and what the unit waits for if room or a vote can help it
    (`wait`). `disruptions` are the evictions decided for the units that wait for them.
    """

    def __init__(
        self,
        state: ClusterState,
        pipeline: Pipeline,
        placer: Placer,
        work: SchedulingQueue,
        plan: Plan,
        now: float,
        should_stop: Callable[[], bool],
        memory: Memo,
        past: CycleHistory | None = None,
    ) -> None:
        self.state = state
        self.pipeline = pipeline
        self.placer = placer
        self.units: list[QueuedUnit] = []
        self.plan = plan
        self.now = now
        self._should_stop = should_stop
        self._steps = 0
        self.cause = f"c{plan.cycle}"
        # Without `allocate` only `backfill` places members of gangs: those that ask for nothing but a slot.
        self.slots_only = pipeline.policy.places_slots_only
        self.tried: set[UnitKey] = set()
        # Units that wait for a change of their own because planning them raised.
        self.set_aside: list[UnitKey] = []
        # The pod that is counted as placed and not in the plan yet.
        self._unbound = ""
        self.unschedulable: dict[UnitKey, tuple[SchedulingSignature, FitError]] = {}
        self.queue = work
        # With how many openings there had been by then.
        self._refused: dict[SchedulingSignature, tuple[FitError, int]] = {}
        self._sentences: dict[Shortage | OverQuota, Verdict] = {}
        self._shortages: dict[ClassRecord, FitError] = {}
        self._gang_verdicts: dict[GangKey, tuple[GangRecord, Verdict | None]] = {}
        self._pod_verdicts: dict[str, tuple[PodRecord, Verdict | None]] = {}
        self._priorities = Priorities(state.gangs.composites)
        self._memory = memory
        past = past if past is not None else CycleHistory()
        self.history, self.timers, self.evictions, self.futility = (
            past.history,
            past.timers,
            past.evictions,
            past.futility,
        )
        # Units that were refused in an earlier cycle, before anybody asked whether others might go for them.
        self.unasked: list[QueuedUnit] = []
        self.asked: set[UnitKey] = set()
        self.made_room = False
        self.disruptions: dict[UnitKey, object] = {}
        # What is above the session: giving units their turn, and who could make room for whom.
        self.walk: Callable[[list[QueuedUnit]], None] = _pass
        self.reclaimable: Callable[[GangRecord, AccountRecord | None], Mapping[str, int]] = _none
        self._causes = 0
        # For whoever computes something from the kinds of pods that there are.
        self.columns: object = None
        self.own_words: object = None
        self.quota_check = QuotaCheck(state.ledger, self._ceilings)
        network = pipeline.policy.topology
        self.topology_domains = TopologyDomains(
            state.topology, placer, network.levels, network.layers, network.max_domains
        )
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

    def requirement(self, gang: GangRecord) -> QuorumRequirement:
        noun = gang.spec
        assert noun is not None
        match gang.cached:
            case (known, QuorumRequirement() as need) if known is noun:
                return need
        need = quorum_requirement(gang, noun)
        gang.cached = (noun, need)
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
        ledger.settle()
        return ledger

    def memo(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` gave since what accounts ask for or hold in sum, or the cluster's size, last changed.

        Kept over cycles. Placing a pod changes neither: it holds then what it asked for before.
        """
        return self._memory.recall(key, self.state.ledger.demand_version, compute)

    @property
    def usage_decay(self) -> UsageDecay:
        """How far the policy lets what accounts have held count."""
        return self.pipeline.policy.usage_decay

    def reclaimable_estimate(self, gang: GangRecord, account: AccountRecord | None = None) -> Mapping[str, int]:
        """resource -> what others hold (in one account, or at all) that they may have to give up for a group."""
        return self.reclaimable(gang, account)

    def _ceilings(self, account: AccountRecord) -> Iterator[Limit]:
        for plugin in self.pipeline.plugins("limit"):
            ceiling = plugin.limit(self, account)
            if ceiling is not None:
                yield ceiling

    def payer(self, unit: GangRecord | PodRecord) -> ChargePath:
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
        """What forbids the unit's payer anything new."""
        payer = self.payer(unit)
        self.state.ledger.refresh()
        if payer.fault is not None:
            return Blocked(payer.fault.code, payer.fault.message)
        for plugin in self.pipeline.plugins("blocked"):
            verdict = plugin.blocked(self, unit, payer)
            if verdict is not None:
                return Blocked(verdict.code, verdict.message, verdict.change)
        return None

    def recheck_at(self, unit: QueuedUnit) -> float | None:
        """When what the plugins say about a waiting unit changes by itself."""
        plugins = self.pipeline.plugins("recheck_at")
        times = [plugin.recheck_at(self, each, self.payer(each)) for plugin in plugins for each in unit.members]
        return min((when for when in times if when is not None and when > self.now), default=None)

    # what actions ask

    def rank(self, gang: GangRecord | PodRecord) -> Rank:
        """The plugins' opinion on the order, first tier first."""
        return tuple([plugin.gang_order(self, gang) for plugin in self.pipeline.plugins("gang_order")])

    def pending_in_order(self, gang: GangRecord) -> list[PodRecord]:
        """Pending members whom the policy's actions place, by the plugins' pod order, then index, age and name."""
        plugins = self.pipeline.plugins("pod_order")
        pending: Iterable[PodRecord] = gang.pending.values()
        if self.slots_only:
            pending = (member for member in pending if member.pod_class.spec.best_effort)
        return sorted(
            pending,
            key=lambda member: (*[plugin.pod_order(self, member) for plugin in plugins], *member.order[1:]),
        )

    def colocation_groups(self, gang: GangRecord) -> ColocationGroups | None:
        """Which members of a gang would rather be on one node."""
        found = (plugin.colocation_groups(self, gang) for plugin in self.pipeline.plugins("colocation_groups"))
        return next((huddles for huddles in found if huddles is not None), None)

    def upper_bound(self, demand: SchedulingSignature, unit: QueuedUnit) -> int:
        """At most how many units with the demand of this one could get something now."""
        if isinstance(demand, FifoBlocked):
            return UNBOUNDED
        if isinstance(demand, GroupTreeSignature):
            return UNBOUNDED if any(self.upper_bound(part, unit) for part in demand.parts) else 0
        if isinstance(demand, NominatedSignature):
            here = demand.arrived(self.state.pods.unreleased)
            return UNBOUNDED if here or demand.wanted.upper_bound(self) else 0
        if isinstance(demand, QuotaBlocked):
            return 0 if any(self.blocked(member) for member in unit.members) else UNBOUNDED
        if not isinstance(demand, AdmissionSignature):
            return demand.upper_bound(self)
        if demand.bundled:
            return UNBOUNDED
        waiting = [gang for gang in unit.gangs if awaits_admission(gang)]
        return min((self.pipeline.max_admissions(self, gang) for gang in waiting), default=UNBOUNDED)

    def known_fit_error(self, demand: SchedulingSignature) -> FitError | None:
        """The refusal of a demand after which room has not grown: in a cycle it only shrinks, except for pods that
        hope for others to be placed."""
        found, openings = self._refused.get(demand, (None, 0))
        if found is not None:
            return found if openings == self.state.affinity_version or not helped_by_placements(demand) else None
        return self.queue.known_fit_error(demand)

    def record_fit_error(self, demand: SchedulingSignature, facts: object, version: int | None = None) -> FitError:
        """Remembers that a demand cannot be met and why; `facts` are as of `version`, by default as of now."""
        refusal = FitError(facts, self.state.version if version is None else version)
        self._refused[demand] = (refusal, self.state.affinity_version)
        return refusal

    def shortage(self, cls: ClassRecord, afresh: bool = False) -> FitError:
        """Why no further copy of the class fits; from earlier in the cycle unless it must hold now (`afresh`)."""
        found = self._shortages.get(cls)
        if found is None or (afresh and found.version != self.state.version):
            facts: Shortage = shortage(self.pipeline, self.state.nodes, cls)
            found = self._shortages[cls] = FitError(facts, self.state.version)
        return found

    def shared_verdict(self, facts: Shortage | OverQuota) -> Verdict:
        """The verdict on every pod on its own that lacks this room: one object for all of them."""
        verdict = self._sentences.get(facts)
        if verdict is None:
            verdict = no_room_for_pod(facts) if isinstance(facts, Shortage) else over_ceiling_for_pod(facts)
            self._sentences[facts] = verdict
        return verdict

    def fit_error_facts_now(self, kind: PodSignature) -> Shortage | OverQuota:
        """Why no further pod of the kind fits or is allowed, in the midst of a transaction."""
        excess = self.quota_check.over_quota(kind.payer, kind.cls.footprint)
        if excess is not None and not (excess.computed and not self.placer.fits(kind.cls)):
            return excess
        if kind.area is not None:
            return no_room_near(self, kind.area, kind)
        return shortage(self.pipeline, self.state.nodes, kind.cls)

    def fit_error_facts(self, kind: PodSignature, afresh: bool = False) -> tuple[Shortage | OverQuota, int]:
        """(why no further pod of the kind fits or is allowed, as of which version of the cluster)."""
        excess = self.quota_check.over_quota(kind.payer, kind.cls.footprint)
        if excess is not None and not (excess.computed and not self.placer.fits(kind.cls)):
            return excess, self.state.version
        if kind.area is not None:
            return no_room_near(self, kind.area, kind), self.state.version
        found = self.shortage(kind.cls, afresh)
        assert isinstance(found.facts, Shortage)
        return found.facts, found.version

    def shortfall_in_sum(self, wanted: Requests, afresh: bool = False) -> Requests:
        """What the amounts exceed, per resource, that which all nodes together have idle; with what an open
        transaction has changed if `afresh`.

        The test of the coscheduling plugin before it tries a group (research/coscheduling.md, section 2). A sum
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
        return self._steps * _LEAST_PART > len(self.units) and self._should_stop()

    def count_step(self) -> None:
        """Something was done that the next cycle will not have to do again."""
        self._steps += 1

    # when something raises

    def begin_turn(self) -> tuple[int, ...]:
        """What there is of the plan, for `undo_turn`."""
        self.state.transactions.forget()
        plan = self.plan
        return len(plan.binds), len(plan.nominations), len(plan.evictions), len(plan.admissions)

    def undo_turn(self, marks: tuple[int, ...]) -> None:
        """Takes back what was begun and decided since then, but for pods that belong to no gang: each of them is
        complete by itself."""
        self.state.transactions.end_all()
        plan = self.plan
        binds, nominations, evictions, admissions = (
            part[mark:] for part, mark in zip(self._decisions(), marks, strict=True)
        )
        kept = [bind for bind in binds if bind.gang is None]
        plan.binds[marks[0] :] = kept
        self.state.pods.binding_failed(self._unbound)
        for part, mark in zip(self._decisions()[1:], marks[1:], strict=True):
            del part[mark:]
        for bind in binds:
            if bind.gang is not None:
                self.state.pods.binding_failed(bind.uid)
        for evict in evictions:
            self.state.pods.eviction_refused(evict.uid, self.now)
        for uid in {nomination.uid for nomination in nominations}:
            if (record := self.state.pods.get(uid)) is not None:
                self.withdraw_nominations([record])
        for admission in admissions:
            self.state.gangs.admission_failed(admission.gang)

    def _decisions(self) -> tuple[list[Any], ...]:
        return self.plan.binds, self.plan.nominations, self.plan.evictions, self.plan.admissions

    # what actions decide

    def mark_tried(self, unit: QueuedUnit) -> None:
        """The unit had its turn."""
        self.tried.add(unit.key)
        self._steps += 1

    def set_unschedulable(self, unit: QueuedUnit, demand: SchedulingSignature, refusal: FitError) -> None:
        """The unit could not get what it asks for; it wakes when it may."""
        self.unschedulable[unit.key] = (demand, refusal)

    def bind(
        self, record: PodRecord, row: int, gang: GangKey | None, mark: PlanMark | None, together: str = ""
    ) -> None:
        """Records a placement whose row is already charged (by a committed transaction); `together` names the
        decision where none of its pods may be bound before all are prepared."""
        pod = record.pod
        self._steps += 1
        self.state.pods.assume(record, row, mark)
        node = self.state.nodes.names[row]
        # The binding clears the nomination, and one that this cycle has made need not be written.
        self._unbound = pod.uid
        preparations, annotations = binding_writes(record, self.now)
        self._unbound = ""
        self.plan.binds.append(
            Bind(
                pod.uid, pod.namespace, pod.name, node, gang, mark, self.cause, preparations, annotations, together
            )
        )
        if record.last_verdict is not None:
            self.judge_pod(record, None)

    def bind_member(self, record: PodRecord, row: int, gang: GangRecord | None) -> None:
        """The same for a pod on its own (no `gang`), or one more member of a gang that has its quorum."""
        if gang is None or gang.spec is None:
            self.bind(record, row, None, None)
        else:
            self.bind(record, row, gang.key, joining_mark(gang.spec, self.cause, int(self.now)))

    def next_cause(self) -> str:
        """A name for one more decision of this cycle."""
        self._causes += 1
        return f"{self.cause}.{self._causes}"

    def nominate(self, record: PodRecord, row: int, claim: Nomination) -> None:
        """Holds room for a pod that waits until others have left."""
        self.state.pods.nominate(record, row, claim)
        self._nominated(record)

    def withdraw_nominations(self, records: Iterable[PodRecord], heir: str = "") -> None:
        """Gives up what is held for the pods; `heir` is the cause of the decision that takes it over."""
        for record in records:
            if self.state.pods.cancel_nomination(record):
                self._nominated(record, heir)

    def _nominated(self, record: PodRecord, heir: str = "") -> None:
        """Says on which node room is held for a pod now, if on any."""
        pod, claim = record.pod, record.nomination
        cause = claim.cause if claim is not None else self.cause
        self.plan.nominations.append(Nominate(pod.uid, pod.namespace, pod.name, record.nominated_node, cause, heir))

    def evict(
        self, record: PodRecord, reason: EvictionReason, message: str, beneficiary: str = "", cause: str = ""
    ) -> None:
        """Tells a pod to leave; from now on it counts as terminating."""
        pod, gang = record.pod, record.gang
        self._steps += 1
        self.evictions.evicted(record, self.now)
        self.state.pods.mark_evicting(record)
        key = gang.key if gang is not None else None
        self.plan.evictions.append(
            Evict.of(pod, reason, message, cause=cause or self.cause, gang=key, beneficiary=beneficiary)
        )

    def admit(self, gang: GangRecord) -> None:
        self._steps += 1
        self.state.gangs.admit(gang.key)
        self.plan.admissions.append(Admit(gang.key))
        for plugin in self.pipeline.plugins("admitted"):
            plugin.admitted(self, gang)

    def judge_gang(self, gang: GangRecord, verdict: Verdict | None) -> None:
        """The last judgement of a cycle counts."""
        self._gang_verdicts[gang.key] = (gang, verdict)

    def judge_pod(self, record: PodRecord, verdict: Verdict | None) -> None:
        """A pod on its own, or a member above its gang's minimum."""
        self._pod_verdicts[record.pod.uid] = (record, verdict)

    def has_verdict(self, unit: QueuedUnit) -> bool:
        if unit.pod is not None:
            return unit.pod.pod.uid in self._pod_verdicts
        return any(gang.key in self._gang_verdicts for gang in unit.gangs)

    def publish_verdicts(self) -> None:
        """Puts into the plan what is news to somebody: a new verdict, or a gang that has a new pending member."""
        for key, (gang, verdict) in self._gang_verdicts.items():
            news = (verdict, gang.arrivals)
            if gang.last_verdict != news:
                gang.last_verdict = news
                self.plan.gangs.append(GangVerdict(key, verdict))
                for member in gang.pending.values() if verdict is not None else ():
                    member.last_verdict = None  # what the gang is told now takes the place of it
        for uid, (record, verdict) in self._pod_verdicts.items():
            if record.last_verdict != verdict:
                record.last_verdict = verdict
                self.plan.pods.append(PodVerdict(uid, verdict))
