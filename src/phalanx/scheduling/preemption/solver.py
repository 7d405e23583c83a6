"""Making room: which pods must go so that all of a preemptor fits, or that no choice of them would help.

A search tries on the live arrays, within one transaction that is rolled back in any case: who is leaving anyway is
taken off first, then victims, in the policy's order, until the whole preemptor can be placed under every filter
and every ceiling; then each victim that is not needed comes back. Nothing is evicted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from phalanx.cluster.accounts import AccountRecord, add_amounts
from phalanx.cluster.pods.nominations import Nomination
from phalanx.cluster.pods.records import PodRecord
from phalanx.scheduling.framework.eviction_options import EvictionOptions
from phalanx.scheduling.preemption.preemptor import Preemptor
from phalanx.scheduling.preemption.reclaimees import Reclaimees, VictimRank
from phalanx.scheduling.preemption.rules.eviction_limits import EvictionDelays
from phalanx.scheduling.preemption.search.candidates import Candidates
from phalanx.scheduling.preemption.search.choice import VictimChoice, WorkLimit
from phalanx.scheduling.preemption.search.removed_victims import RemovedVictims
from phalanx.scheduling.preemption.search.victim_orderings import victim_orderings
from phalanx.scheduling.preemption.search.victim_sequence import SearchContext
from phalanx.scheduling.preemption.solution import Eviction, NoSolution, cost_of
from phalanx.scheduling.preemption.victims import VictimCandidate
from phalanx.scheduling.refusals.refusal import GangFault
from phalanx.scheduling.session.eviction_log import EvictionLog
from phalanx.scheduling.session.eviction_searches import SearchOutcome
from phalanx.scheduling.session.no_solution import EvictionQuestion
from phalanx.scheduling.session.session import Session

# A pod that is still terminating so many seconds after its grace is over is not counted on any more.
_OVERDUE = 60
# One that has longer still is not waited for by whoever could do without (seconds).
SOON = 300
# Room for which so many were nominated one after the other is left to the last.
_MOST_TRANSFERS = 3


def solve(session: Session, preemptor: Preemptor) -> Eviction | NoSolution:
    """Which pods must go, or that no choice helps; what has no solution is not tried again until that may have
    changed."""
    question = _question_of(preemptor)
    state = session.state
    known = session.no_solutions.known_no_solution(
        question, state.capacity_version, state.bound_version, session.now
    )
    if known is not None:
        assert isinstance(known, NoSolution)
        return known
    session.searches.begin()
    with session.features.search(session, preemptor.unit):
        found = Solver(session, preemptor, session.plugin_runtime.policy.eviction, session.evictions).solve()
    session.searches.end(_outcome_of(found))
    if isinstance(found, NoSolution):
        session.no_solutions.add_no_solution(question, state.capacity_version, state.bound_version, found)
    return found


def _outcome_of(found: Eviction | NoSolution) -> SearchOutcome:
    if isinstance(found, NoSolution):
        return SearchOutcome.NOTHING
    return SearchOutcome.EVICTS if found.evicts else SearchOutcome.WAITS


def _question_of(preemptor: Preemptor) -> EvictionQuestion:
    # Only a gang that has members on nodes may find victims among its own.
    gangs = tuple(gang for gang in preemptor.gangs if gang.active)
    return EvictionQuestion(
        preemptor.demand,
        preemptor.priority,
        preemptor.pod_priority,
        preemptor.preempts,
        gangs,
        preemptor.total,
    )


class Solver:
    """One question; `solve` answers it. `enforced` tells whether rules, vetoes and limits hold."""

    enforced: ClassVar[bool] = True

    def __init__(self, session: Session, preemptor: Preemptor, options: EvictionOptions, log: EvictionLog) -> None:
        self._session = session
        self._preemptor = preemptor
        self._options = options
        self._log = log
        self._work_limit = WorkLimit(
            32 * len(preemptor.classes) + 8 * preemptor.total + session.state.nodes.extent // 8
        )
        self._late: dict[AccountRecord, dict[str, int]] = {}
        self._held: dict[AccountRecord, dict[str, int]] = {}
        self._terminating: list[PodRecord] = []
        self._nominated_others: list[PodRecord] = []
        self._delays = EvictionDelays()

    def solve(self) -> Eviction | NoSolution:
        state = self._session.state
        if self.enforced and not self._preemptor.preempts:
            return NoSolution(None, 0, (("the preemptor's preemptionPolicy is Never", 0),))
        self._candidates = self._find_candidates()
        self._reclaimees = self._candidates.reclaimees
        self._context = SearchContext(
            self._session,
            self._log,
            self._holding,
            self._delays,
            self.enforced,
            self._reclaimees.drf,
            self._reclaimees.overrules_owner,
        )
        if (
            self.enforced
            and not self._reclaimees.any_possible
            and not (state.pods.terminating or state.pods.nominated or self._preemptor.nominated)
        ):
            # Nothing is different from what it was when the preemptor found no room.
            return self._no_solution(None)
        # Shares follow from what everybody wants: they must not be worked out while some are tentatively gone.
        for charge_path in self._preemptor.charge_paths:
            self._session.quota_check.account_limits(charge_path)
        transaction = self._transaction = state.transaction()
        transaction.lift(self._preemptor.nominated)
        self._terminating = [record for record in state.pods.terminating.values() if self._will_leave(record)]
        transaction.remove(self._terminating)
        for record in state.pods.terminating.values():
            if record not in self._terminating and record.charge_path is not None and record.pod.node:
                for account in record.charge_path.path:
                    add_amounts(self._late.setdefault(account, {}), record.footprint.amounts, 1)
        own = set(self._preemptor.nominated)
        self._nominated_others = [r for r in state.pods.nominated.values() if r not in own and self._gives_way(r)]
        try:
            return self._search()
        finally:
            transaction.rollback()

    def _search(self) -> Eviction | NoSolution:
        choice = VictimChoice(
            self._context,
            self._preemptor,
            self._transaction,
            self._work_limit,
            lambda: self._try() is None,
            self._solution,
        )
        facts = self._try()
        rivals, self._nominated_others = self._nominated_others, []
        if facts is not None and rivals:
            # Only who does not fit beside what is held for others takes it.
            self._nominated_others = rivals
            self._transaction.lift(rivals)
            facts = self._try()
        if facts is None:
            found = choice.nobody_evicted()
            assert found is not None
            return found
        # Ports, devices and other pods' rules are not part of the sums that would be freed.
        tells = not any(pod_class.dynamic for pod_class in self._preemptor.classes)
        arriving = bool(self._reclaimees.arriving.any())
        if not self._reclaimees.any_possible:
            return self._no_solution(facts)
        if tells or not self._reclaimees.pods:
            without = self._try_without(None)
            if without is not None:
                pods_arriving = arriving and (not tells or self._try_without(None, arriving=True) is None)
                return self._no_solution(without, pods_arriving)
        near = self._within_domains(choice)
        if near is not None:
            return near
        for candidates in self._candidates.rounds(lambda most: self._try_without(most) is None):
            best: Eviction | None = None
            for group in self._candidates.groups(candidates):
                found = choice.best_of(victim_orderings(self._context, self._preemptor, group), group)
                if found is not None and (best is None or found.cost < best.cost):
                    best = found
            if best is not None:
                return best
        return self._no_solution(facts, arriving)

    def _within_domains(self, choice: VictimChoice) -> Eviction | None:
        """The best choice within one of the domains that would take the preemptor if all went who may go: of too
        many those in which most of it fits already."""
        if self._preemptor.required_domain is None:
            return None
        (area, want), domains, best = self._preemptor.required_domain, self._session.topology_domains, None
        sums = self._reclaimees.freed_amounts(None)
        self._transaction.remove_sums(sums.freed, sums.charges)
        promising = domains.promising(area, want)
        self._transaction.put_back_sums()
        ranked = sorted(promising, key=lambda domain: -domains.placeable(domain, area, want))
        here = self._reclaimees.rows()
        for domain in ranked[: domains.most_for_evictions]:
            rows = domain.rows
            candidates = self._candidates.on_rows([row for row in here if rows[row]])
            with self._session.placer.within(rows):
                found = (
                    choice.best_of(victim_orderings(self._context, self._preemptor, candidates), candidates)
                    if candidates
                    else None
                )
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        return best

    # asking

    def _find_candidates(self) -> Candidates:
        reclaimees = Reclaimees(self._session, self._preemptor, self._options)
        return Candidates(self._session, self._preemptor, reclaimees, self._options)

    def _try(self) -> GangFault | None:
        """Whether the preemptor fits now; nothing stays placed."""
        self._work_limit.count_try()
        facts = self._preemptor.place(self._session, self._transaction)
        self._transaction.unplace()
        return facts

    def _try_without(self, most: VictimRank | None, arriving: bool = False) -> GangFault | None:
        """The same without everybody who may go up to a level, gangs and vetoes of single pods aside; and without
        those who may once they have arrived."""
        sums = self._reclaimees.freed_amounts(most, arriving)
        self._transaction.remove_sums(sums.freed, sums.charges)
        facts = self._try()
        self._transaction.put_back_sums()
        return facts

    def _holding(self, account: AccountRecord) -> Mapping[str, int]:
        """What an account will hold once everything has gone that is on its way out, before anybody else has to go:
        who leaves soon has gone."""
        amounts = self._held.get(account)
        if amounts is None:
            amounts = self._held[account] = dict(account.used)
            add_amounts(amounts, self._late.get(account, {}), -1)
        return amounts

    def _will_leave(self, record: PodRecord) -> bool:
        """Whether to count on a terminating pod's room: it leaves soon, and is not long overdue."""
        left = record.pod.leaves - self._session.now if record.pod.leaves else record.pod.grace
        return -_OVERDUE <= left <= SOON

    def _gives_way(self, record: PodRecord) -> bool:
        """Whether what is held for a pod may be taken from it, as its place could be if it had one already.

        Not without end: of several who may each take from the next, in a circle, nobody would ever get it.
        """
        if record.nomination is not None and record.nomination.transfers >= _MOST_TRANSFERS:
            return False
        return record.charge_path is not None and not isinstance(self._reclaimees.reclaim_rule(record), str)

    def _displaced(self) -> tuple[PodRecord, ...]:
        """Those whose nominations the preemptor takes, while it is placed; all others' stand again for this
        look."""
        nominations: dict[Nomination, list[PodRecord]] = {}
        for record in self._nominated_others:
            if record.nomination is not None:
                nominations.setdefault(record.nomination, []).append(record)
        losers: list[PodRecord] = []
        priority = self._session.priority
        for records in sorted(
            nominations.values(), key=lambda them: -max(priority(r.gang if r.gang is not None else r) for r in them)
        ):
            self._transaction.relend(records)
            if not (self._rows_hold({r.row for r in records if r.row >= 0}) and self._accounts_hold()):
                self._transaction.lift(records)
                losers += records
        self._transaction.lift(self._nominated_others)
        return tuple(losers)

    def _rows_hold(self, rows: set[int]) -> bool:
        """Whether nothing is given away twice on these rows."""
        return not (self._session.state.nodes.idle[:, sorted(rows)] < 0).any()

    def _needed(self) -> tuple[PodRecord, ...]:
        """Those who leave anyway and whose room is counted on, while the preemptor is placed: on the nodes that
        it uses, or in its accounts."""
        rows = {row for _, row in self._preemptor.placed}
        here = [record for record in self._terminating if record.row in rows]
        elsewhere = [record for record in self._terminating if record.row not in rows]
        self._transaction.put_back(elsewhere)
        if not self._accounts_hold():
            accounts = {
                account_limit.account
                for charge_path in self._preemptor.charge_paths
                for account_limit in self._session.quota_check.account_limits(charge_path)
            }
            here += [
                r for r in elsewhere if r.charge_path is not None and not accounts.isdisjoint(r.charge_path.path)
            ]
        self._transaction.remove(elsewhere)
        return tuple(here)

    def _accounts_hold(self) -> bool:
        """Whether no account of the preemptor holds more than it may of what the preemptor asks for."""
        return not any(self._session.quota_check.overdrawn(self._preemptor.charge_paths))

    def _no_solution(self, facts: GangFault | None, pods_arriving: bool = False) -> NoSolution:
        refused = self._reclaimees.refused + self._candidates.refused + Counter(self._delays.counts())
        ends = [when for when in (self._candidates.retry_at, self._delays.until) if when is not None]
        ranked = sorted(refused.items(), key=lambda entry: (-entry[1], entry[0]))
        return NoSolution(facts, self._reclaimees.pods, tuple(ranked), min(ends, default=None), pods_arriving)

    def _solution(self, taken: RemovedVictims, chosen: Sequence[VictimCandidate]) -> Eviction | None:
        if self._preemptor.place(self._session, self._transaction) is not None:
            return None
        found = Eviction(
            tuple(chosen),
            tuple(self._preemptor.placed),
            self._needed(),
            cost_of(chosen, taken.violations, self._holding),
            self._displaced() if self._nominated_others else (),
        )
        self._transaction.unplace()
        return found
