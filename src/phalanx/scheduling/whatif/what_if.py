"""What-if search for a unit that finds no victims: the victims without any rules, and the rules against each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec
import numpy as np

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.model.decisions import EvictionReason
from phalanx.model.pod import CAN_LEAVE
from phalanx.scheduling.framework.eviction_options import EvictionOptions
from phalanx.scheduling.framework.extension_points import EvictVeto
from phalanx.scheduling.preemption.preemptor import Preemptor, never_evicts
from phalanx.scheduling.preemption.reclaimees import Reclaimees
from phalanx.scheduling.preemption.rules.eviction_limits import EvictionDelays, EvictionLimits
from phalanx.scheduling.preemption.rules.rule import ReclaimRule
from phalanx.scheduling.preemption.rules.self_protection import evict_vetoes_on
from phalanx.scheduling.preemption.search.candidates import Candidates
from phalanx.scheduling.preemption.solution import Eviction, NoSolution
from phalanx.scheduling.preemption.solver import Solver
from phalanx.scheduling.preemption.victims import Removals, VictimCandidate
from phalanx.scheduling.refusals.refusal import GangFault
from phalanx.scheduling.session.eviction_log import EvictionLog, rates
from phalanx.scheduling.session.session import Session

ONE_NODE = "the policy requires all victims of a pod on one node (singleNodePreemption)"
NO_WHOLE_GANG = "the policy evicts no whole gang (allowWholeBundle: false)"
MATE_STAYS = "each belongs to a gang with another member that cannot be evicted"
NO_SET = "no sufficient set of victims was found within the work limit of a cycle"

# Distances beyond all real reclaimees: victims that only a priority or veto protects come before victims without
# any rule.
_NEAR = 1000
_FAR = ReclaimRule(EvictionReason.PREEMPTED, False, distance=_NEAR + 1)


class EvictionObstacle(msgspec.Struct, frozen=True):
    """Reason why some of the victims cannot be evicted.

    `why` continues "N pod(s) may not go: ". `until` is the time (seconds since the epoch) at which it ends for the
    last of them; None if it does not end by itself.
    """

    why: str
    records: tuple[PodRecord, ...]
    until: float | None = None


class WhatIf(msgspec.Struct, frozen=True):
    """Eviction that would help without rules, including displaced nominations, and its `obstacles`, the most
    frequent first.

    If no eviction would help, `eviction` is None and `missing` is the remaining fit error.
    """

    eviction: Eviction | None
    missing: GangFault | None = None
    obstacles: tuple[EvictionObstacle, ...] = ()


class _AllPods(Reclaimees):
    """All pods except DaemonSet and static pods as possible victims, whatever quotas, queues, priorities and marks
    say.

    A pod that can be evicted by the rules keeps its rule, and so sorts first.
    """

    def reclaim_rule(self, record: PodRecord) -> ReclaimRule | str:
        assert record.charge_path is not None
        if record.pod.fixture:
            return "they belong to their nodes"
        if record.gang is not None and record.gang in self._preemptor.gangs:
            return super().reclaim_rule(record)
        return self._free(record.charge_path)

    def _may_go(self, counts: IntArray) -> BoolArray:
        # Include a class with both fixtures and marked pods: single pods are checked in `reclaim_rule`.
        allowed: BoolArray = counts > 0
        for gang in self._preemptor.gangs:
            for number in self._session.state.victims.of_gang(gang):
                kind = self.classes[number]
                rule = self._by_priority(self._rule_for(kind.charge_path), kind.gang, kind.priority)
                allowed[number] &= not isinstance(rule, str)
        for place in np.unique(self._classes.charge_path[allowed]).tolist():
            self._free(self._classes.charge_paths[place])
        return allowed

    def _free(self, charge_path: ChargePath) -> ReclaimRule:
        self._rule_for(charge_path)
        return self.rules.setdefault(charge_path, _FAR)


class _AllCandidates(Candidates):
    """All bound pods as candidates, whatever plugins veto. Victims with an objection sort last."""

    def __init__(
        self,
        session: Session,
        preemptor: Preemptor,
        reclaimees: Reclaimees,
        options: EvictionOptions,
        earnest: Reclaimees,
    ) -> None:
        super().__init__(session, preemptor, reclaimees, options)
        self._earnest = earnest

    def on_rows(self, rows: Iterable[int]) -> list[VictimCandidate]:
        victims = super().on_rows(rows)
        for victim in victims:
            if any(_objections(self._session, self._earnest, record) for record in victim.records):
                victim.preempted, victim.distance = True, max(_NEAR, victim.distance)
                victim.order_key = (True, victim.distance, *victim.order_key[2:])
        return sorted(victims, key=lambda victim: victim.order_key)

    def groups(self, candidates: list[VictimCandidate]) -> list[list[VictimCandidate]]:
        return [candidates]

    def _passes_vetoes(self, record: PodRecord) -> bool:
        return record.state in CAN_LEAVE and self._of_allowed_class(record)

    def _may_go_as_a_whole(self, victim: VictimCandidate) -> bool:
        return True


class _UnboundSolver(Solver):
    """Search without rules, vetoes and limits."""

    enforced: ClassVar[bool] = False
    missing: GangFault | None = None
    """Fit error of the last try; if nothing helps, that is the try without all pods."""

    def _try(self) -> GangFault | None:
        self.missing = super()._try()
        return self.missing

    def _find_candidates(self) -> Candidates:
        real_reclaimees = Reclaimees(self._session, self._preemptor, self._options)
        all_pods = _AllPods(self._session, self._preemptor, self._options)
        return _AllCandidates(self._session, self._preemptor, all_pods, self._options, real_reclaimees)


def what_if(session: Session, preemptor: Preemptor, options: EvictionOptions, log: EvictionLog) -> WhatIf:
    """Return the what-if result for a preemptor without a solution of the real search."""
    search = _UnboundSolver(session, preemptor, options, log)
    # Room that is reserved for the unit is open to it, as in the real search.
    with session.features.search(session, preemptor.unit):
        result = search.solve()
    if isinstance(result, NoSolution):
        return WhatIf(None, search.missing)
    obstacles = _Obstacles(session, preemptor, options, log).of(result.victims, result.displaced)
    return WhatIf(result, None, obstacles)


class _Obstacles:
    def __init__(self, session: Session, preemptor: Preemptor, options: EvictionOptions, log: EvictionLog) -> None:
        self._session = session
        self._preemptor = preemptor
        self._options = options
        self._log = log
        self._reclaimees = Reclaimees(session, preemptor, options)
        self._found: dict[str, tuple[dict[str, PodRecord], list[float | None]]] = {}

    def of(self, victims: Sequence[VictimCandidate], losers: Sequence[PodRecord]) -> tuple[EvictionObstacle, ...]:
        all_records = [*(record for victim in victims for record in victim.records), *losers]
        if not self._preemptor.preempts:
            self._note(never_evicts(self._preemptor), all_records)
        unopposed = [victim for victim in victims if not self._has_objections(victim)]
        self._check_together(unopposed)
        for record in losers:
            objection = _rule_against(self._session, self._reclaimees, record)
            if objection is not None:
                self._note(f"they are nominated, and {objection}", [record])
        if not self._found:
            single = self._options.preempt_on_single_node or self._options.reclaim_on_single_node
            self._note(ONE_NODE if single else NO_SET, all_records)
        ranked = sorted(self._found.items(), key=lambda entry: (-len(entry[1][0]), entry[0]))
        return tuple(
            EvictionObstacle(
                why, tuple(records.values()), max((when for when in until if when is not None), default=None)
            )
            for why, (records, until) in ranked
        )

    def _has_objections(self, victim: VictimCandidate) -> bool:
        """Record the objections to evicting single pods and the whole gang; return whether there are any."""
        stuck: set[str] = set()
        for record in victim.records:
            for objection in _objections(self._session, self._reclaimees, record):
                stuck.add(record.pod.uid)
                why = f"each {objection.why}" if isinstance(objection, EvictVeto) else objection
                self._note(why, [record], objection.until if isinstance(objection, EvictVeto) else None)
        if stuck:
            self._note(MATE_STAYS, [record for record in victim.records if record.pod.uid not in stuck])
        options = self._options
        allowed = options.preempt_whole_gangs if victim.preempted else options.reclaim_whole_gangs
        if victim.whole and not allowed:
            self._note(NO_WHOLE_GANG, victim.records)
        return bool(stuck) or (victim.whole and not allowed)

    def _check_together(self, victims: Sequence[VictimCandidate]) -> None:
        """Record the victims that cannot be evicted after those before them."""
        delays, now = EvictionDelays(), self._session.now
        removals, limits = (
            Removals(),
            EvictionLimits(self._session, self._log, delays, self._reclaimees.overrules_owner),
        )
        for victim in victims:
            delays.until = None
            if not removals.allows(victim):
                self._note(_limit_reached(victim, removals), victim.records)
                continue
            why = limits.try_evict_all(victim.records)
            if why is None:
                removals.add(victim)
                continue
            # A delay by an eviction rate does not end by itself if this set of victims alone exceeds the rate.
            own = {now + rate.window for record in victim.records for _, rate in rates(record)}
            self._note(why, victim.records, None if delays.until in own else delays.until)

    def _note(self, why: str, records: Iterable[PodRecord], until: float | None = None) -> None:
        for record in records:
            known, times = self._found.setdefault(why, ({}, []))
            known[record.pod.uid] = record
            times.append(until)


def _objections(session: Session, reclaimees: Reclaimees, record: PodRecord) -> list[str | EvictVeto]:
    """Return all objections to a pod's eviction: the phrase of a rule, and the vetoes of plugins."""
    objections: list[str | EvictVeto] = []
    rule = _rule_against(session, reclaimees, record)
    if rule is not None:
        objections.append(rule)
    rule_or_reason = reclaimees.reclaim_rule(record)
    objections += evict_vetoes_on(session, record, rule_or_reason if not isinstance(rule_or_reason, str) else None)
    return objections


def _rule_against(session: Session, reclaimees: Reclaimees, record: PodRecord) -> str | None:
    """Return the objection of quotas, queues and priorities to a pod's eviction; None if there is none."""
    assert record.charge_path is not None
    rule_or_reason = reclaimees.reclaim_rule(record)
    if not isinstance(rule_or_reason, str):
        return None
    if record.charge_path in reclaimees.rules:  # only its priority protects it
        priority = session.victim_priority(record.gang, record.pod.priority)
        return f"their priority {priority} is not lower"
    return rule_or_reason


def _limit_reached(victim: VictimCandidate, removals: Removals) -> str:
    """Return the text about a queue or quota that would no longer exceed its share."""
    for charge_path, rule in victim.rules.items():
        amounts = victim.amounts[charge_path]
        for over in rule.must_exceed:
            if not over.exceeded(removals.holdings_of(over.account), amounts):
                return f"{over.account.label} would be within its share after the other evictions"
        for floor in rule.must_keep:
            if floor.undercut(removals.holdings_of(floor.account), amounts):
                return f"{floor.account.label} would fall below its share"
    raise AssertionError(f"{victim} is permitted")
