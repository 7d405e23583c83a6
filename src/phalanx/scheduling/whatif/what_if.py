"""Evictions for a unit that waits in vain: who would have to go if nobody objected, and who objects to what."""

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
from phalanx.scheduling.preemption.preemptor import Preemptor
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

NEVER = "they who wait have the preemptionPolicy Never"
ONE_NODE = "the policy takes the victims of a pod from one node (singleNodePreemption)"
NO_WHOLE_GANG = "the policy evicts no whole gang (allowWholeBundle: false)"
MATE_STAYS = "each belongs to a gang of which another member may not go"
NO_SET = "no set of them was found within the work that a cycle may do for one who waits"

# Farther than any reclaimee who may go: first those kept by a priority or a veto alone, last those who owe nothing.
_NEAR = 1000
_FAR = ReclaimRule(EvictionReason.PREEMPTED, False, distance=_NEAR + 1)


class EvictionObstacle(msgspec.Struct, frozen=True):
    """Why some of those who would have to go may not: `why` goes on from "N pod(s) may not go: ". `until` is when
    the last of them may (seconds since the epoch), None if that does not change by itself."""

    why: str
    records: tuple[PodRecord, ...]
    until: float | None = None


class WhatIf(msgspec.Struct, frozen=True):
    """Who would have to go if nobody objected, or to give up the room that is held for him (`eviction.displaced`),
    and the `obstacles`, most pods first. Where not even that would help there is no `eviction`, and `missing` says
    what would still be missing."""

    eviction: Eviction | None
    missing: GangFault | None = None
    obstacles: tuple[EvictionObstacle, ...] = ()


class _AllPods(Reclaimees):
    """All pods but those that belong to their nodes, whatever quotas, queues, priorities and marks say.

    Who may go in earnest has the rule that he has, and so comes first.
    """

    def reclaim_rule(self, record: PodRecord) -> ReclaimRule | str:
        assert record.charge_path is not None
        if record.pod.fixture:
            return "they belong to their nodes"
        if record.gang is not None and record.gang in self._preemptor.gangs:
            return super().reclaim_rule(record)
        return self._free(record.charge_path)

    def _may_go(self, counts: IntArray) -> BoolArray:
        # As many as may be: pods that belong to their nodes and pods that are marked may be of one kind.
        left: BoolArray = counts > 0
        for gang in self._preemptor.gangs:
            for number in self._session.state.victims.of_gang(gang):
                kind = self.classes[number]
                word = self._by_priority(self._rule_for(kind.charge_path), kind.gang, kind.priority)
                left[number] &= not isinstance(word, str)
        for place in np.unique(self._classes.charge_path[left]).tolist():
            self._free(self._classes.charge_paths[place])
        return left

    def _free(self, charge_path: ChargePath) -> ReclaimRule:
        self._rule_for(charge_path)
        return self.rules.setdefault(charge_path, _FAR)


class _AllCandidates(Candidates):
    """Whoever stands on a node, whatever plugins object to; those come last who may not go in earnest."""

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
        found = super().on_rows(rows)
        for victim in found:
            if any(_objections(self._session, self._earnest, record) for record in victim.records):
                victim.preempted, victim.distance = True, max(_NEAR, victim.distance)
                victim.order_key = (True, victim.distance, *victim.order_key[2:])
        return sorted(found, key=lambda victim: victim.order_key)

    def groups(self, candidates: list[VictimCandidate]) -> list[list[VictimCandidate]]:
        return [candidates]

    def _judge(self, record: PodRecord) -> bool:
        return record.state in CAN_LEAVE and self._of_allowed_class(record)

    def _may_go_as_a_whole(self, victim: VictimCandidate) -> bool:
        return True


class _UnboundSolver(Solver):
    """The same search where nobody objects to anything."""

    enforced: ClassVar[bool] = False
    missing: GangFault | None = None
    """What was missing at the last try; where nothing is found that is the try without everybody."""

    def _try(self) -> GangFault | None:
        self.missing = super()._try()
        return self.missing

    def _find_candidates(self) -> Candidates:
        earnest = Reclaimees(self._session, self._preemptor, self._options)
        everybody = _AllPods(self._session, self._preemptor, self._options)
        return _AllCandidates(self._session, self._preemptor, everybody, self._options, earnest)


def what_if(session: Session, preemptor: Preemptor, options: EvictionOptions, log: EvictionLog) -> WhatIf:
    """The answer for a preemptor for whom a search in earnest found nothing."""
    search = _UnboundSolver(session, preemptor, options, log)
    found = search.solve()
    if isinstance(found, NoSolution):
        return WhatIf(None, search.missing)
    obstacles = _Obstacles(session, preemptor, options, log).of(found.victims, found.displaced)
    return WhatIf(found, None, obstacles)


class _Obstacles:
    def __init__(self, session: Session, preemptor: Preemptor, options: EvictionOptions, log: EvictionLog) -> None:
        self._session = session
        self._preemptor = preemptor
        self._options = options
        self._log = log
        self._reclaimees = Reclaimees(session, preemptor, options)
        self._found: dict[str, tuple[dict[str, PodRecord], list[float | None]]] = {}

    def of(self, victims: Sequence[VictimCandidate], losers: Sequence[PodRecord]) -> tuple[EvictionObstacle, ...]:
        everybody = [*(record for victim in victims for record in victim.records), *losers]
        if not self._preemptor.preempts:
            self._note(NEVER, everybody)
        free = [victim for victim in victims if not self._individual(victim)]
        self._together(free)
        for record in losers:
            word = _rule_against(self._session, self._reclaimees, record)
            if word is not None:
                self._note(f"room is held for them, and {word}", [record])
        if not self._found:
            single = self._options.preempt_on_single_node or self._options.reclaim_on_single_node
            self._note(ONE_NODE if single else NO_SET, everybody)
        ranked = sorted(self._found.items(), key=lambda entry: (-len(entry[1][0]), entry[0]))
        return tuple(
            EvictionObstacle(
                why, tuple(records.values()), max((when for when in until if when is not None), default=None)
            )
            for why, (records, until) in ranked
        )

    def _individual(self, victim: VictimCandidate) -> bool:
        """Notes what is said about single pods, and about the gang as a whole; whether there is anything."""
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

    def _together(self, victims: Sequence[VictimCandidate]) -> None:
        """Notes which of them may not go once those before them have gone."""
        delays, now = EvictionDelays(), self._session.now
        removals, limits = (
            Removals(),
            EvictionLimits(self._session, self._log, delays, self._reclaimees.overrules_owner),
        )
        for victim in victims:
            delays.until = None
            if not removals.allows(victim):
                self._note(_beyond(victim, removals), victim.records)
                continue
            why = limits.try_evict_all(victim.records)
            if why is None:
                removals.add(victim)
                continue
            # What goes too fast together with others of this very set need not be allowed later.
            own = {now + rate.window for record in victim.records for _, rate in rates(record)}
            self._note(why, victim.records, None if delays.until in own else delays.until)

    def _note(self, why: str, records: Iterable[PodRecord], until: float | None = None) -> None:
        for record in records:
            known, times = self._found.setdefault(why, ({}, []))
            known[record.pod.uid] = record
            times.append(until)


def _objections(session: Session, reclaimees: Reclaimees, record: PodRecord) -> list[str | EvictVeto]:
    """Everything that stands against a pod's eviction as such: a phrase about them all, or what a plugin says."""
    found: list[str | EvictVeto] = []
    rule = _rule_against(session, reclaimees, record)
    if rule is not None:
        found.append(rule)
    word = reclaimees.reclaim_rule(record)
    found += evict_vetoes_on(session, record, word if not isinstance(word, str) else None)
    return found


def _rule_against(session: Session, reclaimees: Reclaimees, record: PodRecord) -> str | None:
    """What quotas, queues and priorities say against taking from a pod."""
    assert record.charge_path is not None
    word = reclaimees.reclaim_rule(record)
    if not isinstance(word, str):
        return None
    if record.charge_path in reclaimees.rules:  # then only priorities are in the way
        priority = session.victim_priority(record.gang, record.pod.priority)
        return f"their priority {priority} is not lower"
    return word


def _beyond(victim: VictimCandidate, removals: Removals) -> str:
    """Which account would have given back all that it may have to."""
    for charge_path, rule in victim.rules.items():
        amounts = victim.amounts[charge_path]
        for over in rule.must_exceed:
            if not over.exceeded(removals.holdings_of(over.account), amounts):
                return f"{over.account.label} would hold no more than its own once the others have gone"
        for floor in rule.must_keep:
            if floor.undercut(removals.holdings_of(floor.account), amounts):
                return f"{floor.account.label} would hold less than what is its own"
    raise AssertionError(f"{victim} is permitted")
