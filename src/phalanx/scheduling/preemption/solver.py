"""Search for the victims that make room for a whole preemptor, or proof that no victims help.

The search works on the live arrays within a transaction that is always rolled back. It first removes terminating
pods, then victims in the policy's order until the preemptor passes all filters and quotas. Then it puts back each
victim that is not needed. The search itself evicts no pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

from phalanx.cluster.accounts import AccountRecord, add_amounts
from phalanx.cluster.pods.nominations import Nomination
from phalanx.cluster.pods.records import PodRecord
from phalanx.scheduling.framework.eviction_options import EvictionOptions
from phalanx.scheduling.ordering.share_changes import share_version
from phalanx.scheduling.preemption.preemptor import Preemptor, never_evicts
from phalanx.scheduling.preemption.reclaimees import Reclaimees, VictimRank
from phalanx.scheduling.preemption.rules.eviction_limits import EvictionDelays
from phalanx.scheduling.preemption.search.candidates import Candidates
from phalanx.scheduling.preemption.search.choice import VictimChoice, WorkLimit
from phalanx.scheduling.preemption.search.removed_victims import AffinityDependents, RemovedVictims
from phalanx.scheduling.preemption.search.victim_orderings import victim_orderings
from phalanx.scheduling.preemption.search.victim_sequence import SearchContext
from phalanx.scheduling.preemption.solution import Eviction, EvictionQuestion, NoSolution, cost_of
from phalanx.scheduling.preemption.victims import VictimCandidate
from phalanx.scheduling.refusals.refusal import GangFault
from phalanx.scheduling.session.eviction_log import EvictionLog
from phalanx.scheduling.session.eviction_searches import SearchOutcome
from phalanx.scheduling.session.session import Session

# A pod that is still terminating this many seconds after its grace period does not count as room any more.
_OVERDUE = 60
# A preemptor does not wait for a pod that terminates later than this (seconds).
SOON = 300
# Work of the searches for placements among victims, in checked nodes: afterwards the usual order alone decides.
SEARCH_WORK = 300_000
# A nomination that was transferred this many times is not displaced again.
_MOST_TRANSFERS = 3


def solve(session: Session, preemptor: Preemptor) -> Eviction | NoSolution:
    """Return the victims to evict, or the proof that no choice helps.

    A question without solution is not searched again until the capacity, the shares, the bindings or the time have
    changed the answer.
    """
    question = _question_of(preemptor)
    state = session.state
    version = state.capacity_version, state.leaving_version, share_version(session)
    known = session.failed_evictions.result(question, version)
    if known is not None:
        result, bound = known
        assert isinstance(result, NoSolution)
        if result.holds(session.now, state.bound_version == bound):
            return result
    session.searches.begin()
    with session.features.search(session, preemptor.unit):
        result = Solver(session, preemptor, session.plugin_runtime.policy.eviction, session.evictions).solve()
    session.searches.end(_outcome_of(result))
    if isinstance(result, NoSolution):
        session.failed_evictions.add(question, version, (result, state.bound_version))
    return result


def _outcome_of(found: Eviction | NoSolution) -> SearchOutcome:
    if isinstance(found, NoSolution):
        return SearchOutcome.NOTHING
    return SearchOutcome.EVICTS if found.evicts else SearchOutcome.WAITS


def _question_of(preemptor: Preemptor) -> EvictionQuestion:
    # Only a gang with bound members can find victims among its own members.
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
    """Search for the victims of one preemptor. `enforced` states whether rules, vetoes and limits hold."""

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
        self._holding = partial(_holding, self._late, {})
        self._terminating: list[PodRecord] = []
        self._nominated_others: list[PodRecord] = []
        self._delays = EvictionDelays()

    def solve(self) -> Eviction | NoSolution:
        state = self._session.state
        if self.enforced and not self._preemptor.preempts:
            return NoSolution(None, 0, ((never_evicts(self._preemptor), 0),))
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
            # The cluster is unchanged since the preemptor was found unschedulable.
            return self._no_solution(None)
        # Compute the shares before the search: they depend on all requests, and pods are tentatively removed below.
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
            with self._session.searches_within(SEARCH_WORK):
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
            # A preemptor displaces nominated pods only where it does not fit beside them.
            self._nominated_others = rivals
            self._transaction.lift(rivals)
            facts = self._try()
        if facts is None:
            eviction = choice.nobody_evicted()
            assert eviction is not None
            return eviction
        # Freed sums do not show ports, devices and other pods' affinity rules.
        sums_suffice = not any(pod_class.dynamic for pod_class in self._preemptor.classes)
        arriving = bool(self._reclaimees.arriving.any())
        if not self._reclaimees.any_possible:
            return self._no_solution(facts)
        if sums_suffice or not self._reclaimees.pods:
            fault = self._try_without(None)
            if fault is not None:
                arriving = arriving and (not sums_suffice or self._try_without(None, arriving=True) is None)
                return self._no_solution(fault, arriving)
        eviction_in_domain = self._within_domains(choice)
        if eviction_in_domain is not None:
            return eviction_in_domain
        best: Eviction | None = None
        for candidates in self._candidates.rounds(lambda most: self._try_without(most) is None):
            first = best is None
            for group in self._candidates.groups(candidates):
                eviction = choice.best_of(victim_orderings(self._context, self._preemptor, group), group)
                if eviction is not None and (best is None or eviction.cost < best.cost):
                    best = eviction
            # Reclaimees outside the first candidates are tried once if these would take one below its share.
            if best is not None and not (first and best.cost.shortfall):
                return best
        return best if best is not None else self._no_solution(facts, arriving)

    def _within_domains(self, choice: VictimChoice) -> Eviction | None:
        """Return the best eviction within one required domain that would fit the preemptor without all possible
        victims.

        Of too many domains only those are searched in which most of the preemptor fits already.
        """
        if self._preemptor.required_domain is None:
            return None
        (area, wanted), domains, best = self._preemptor.required_domain, self._session.topology_domains, None
        sums = self._reclaimees.freed_amounts(None)
        self._transaction.remove_sums(sums.freed, sums.charges)
        promising = domains.promising(area, wanted)
        self._transaction.put_back_sums()
        ranked = sorted(promising, key=lambda domain: -domains.placeable(domain, area, wanted))
        victim_rows = self._reclaimees.rows()
        for domain in ranked[: domains.most_for_evictions]:
            rows = domain.rows
            candidates = self._candidates.on_rows([row for row in victim_rows if rows[row]])
            with self._session.placer.within(rows):
                eviction = (
                    choice.best_of(victim_orderings(self._context, self._preemptor, candidates), candidates)
                    if candidates
                    else None
                )
            if eviction is not None and (best is None or eviction.cost < best.cost):
                best = eviction
        return best

    # Checks of a placement

    def _find_candidates(self) -> Candidates:
        reclaimees = Reclaimees(self._session, self._preemptor, self._options)
        return Candidates(self._session, self._preemptor, reclaimees, self._options)

    def _try(self) -> GangFault | None:
        """Return None if the preemptor fits now, else the fit error; undo the placement."""
        self._work_limit.count_try()
        facts = self._preemptor.place(self._session, self._transaction)
        self._transaction.unplace()
        return facts

    def _try_without(self, most: VictimRank | None, arriving: bool = False) -> GangFault | None:
        """Return None if the preemptor fits without all victims up to rank `most`, else the fit error.

        Gang quorums and vetoes of single pods are ignored. With `arriving`, pods that are still being bound are
        removed too.
        """
        sums = self._reclaimees.freed_amounts(most, arriving)
        self._transaction.remove_sums(sums.freed, sums.charges)
        facts = self._try()
        self._transaction.put_back_sums()
        return facts

    def _will_leave(self, record: PodRecord) -> bool:
        """Return whether a terminating pod counts as free room: it leaves soon and is not long overdue."""
        seconds_left = record.pod.leaves - self._session.now if record.pod.leaves else record.pod.grace
        return -_OVERDUE <= seconds_left <= SOON

    def _gives_way(self, record: PodRecord) -> bool:
        """Return whether the preemptor can displace a nominated pod, by the rule for a bound pod.

        Transfers are limited: pods that displace each other in a circle would never start.
        """
        if record.nomination is not None and record.nomination.transfers >= _MOST_TRANSFERS:
            return False
        return record.charge_path is not None and not isinstance(self._reclaimees.reclaim_rule(record), str)

    def _displaced(self) -> tuple[PodRecord, ...]:
        """Return the nominated pods that the placed preemptor displaces.

        For this check all other nominations are charged again.
        """
        nominations: dict[Nomination, list[PodRecord]] = {}
        for record in self._nominated_others:
            if record.nomination is not None:
                nominations.setdefault(record.nomination, []).append(record)
        displaced: list[PodRecord] = []
        priority = self._session.priority
        for records in sorted(
            nominations.values(),
            key=lambda records: -max(priority(r.gang if r.gang is not None else r) for r in records),
        ):
            self._transaction.relend(records)
            if not (self._rows_hold({r.row for r in records if r.row >= 0}) and self._accounts_hold()):
                self._transaction.lift(records)
                displaced += records
        self._transaction.lift(self._nominated_others)
        return tuple(displaced)

    def _rows_hold(self, rows: set[int]) -> bool:
        """Return whether no row is overcommitted."""
        return not (self._session.state.nodes.idle[:, sorted(rows)] < 0).any()

    def _needed(self) -> tuple[PodRecord, ...]:
        """Return the terminating pods that the placed preemptor needs: on its nodes, in its accounts, or with
        positions that decide by affinity about its nodes."""
        rows = {row for _, row in self._preemptor.placed}
        dependents = AffinityDependents(self._session, self._preemptor.classes) if self._terminating else None
        needed, elsewhere = list[PodRecord](), list[PodRecord]()
        for record in self._terminating:
            near = record.row in rows or (dependents and dependents.includes(record.pod_class))
            (needed if near else elsewhere).append(record)
        self._transaction.put_back(elsewhere)
        if not self._accounts_hold():
            accounts = {
                account_limit.account
                for charge_path in self._preemptor.charge_paths
                for account_limit in self._session.quota_check.account_limits(charge_path)
            }
            needed += [
                r for r in elsewhere if r.charge_path is not None and not accounts.isdisjoint(r.charge_path.path)
            ]
        self._transaction.remove(elsewhere)
        return tuple(needed)

    def _accounts_hold(self) -> bool:
        """Return whether no account of the preemptor exceeds its limits in the requested resources."""
        return not any(self._session.quota_check.overdrawn(self._preemptor.charge_paths))

    def _no_solution(self, facts: GangFault | None, arriving: bool = False) -> NoSolution:
        # A gang that grows has a larger dominant share.
        bindings_help = arriving or self._reclaimees.drf is not None
        refused = self._reclaimees.refused + self._candidates.refused + Counter(self._delays.counts())
        ends = [when for when in (self._candidates.retry_at, self._delays.until) if when is not None]
        ranked = sorted(refused.items(), key=lambda entry: (-entry[1], entry[0]))
        return NoSolution(facts, self._reclaimees.pods, tuple(ranked), min(ends, default=None), bindings_help)

    def _solution(self, taken: RemovedVictims, chosen: Sequence[VictimCandidate]) -> Eviction | None:
        # These victims suffice. The search that has shown it can have used up the limit, and must be repeated.
        with self._session.searches_within(None):
            facts = self._preemptor.place(self._session, self._transaction)
        if facts is not None:
            return None
        eviction = Eviction(
            tuple(chosen),
            tuple(self._preemptor.placed),
            self._needed(),
            cost_of(chosen, taken.violations, self._holding),
            self._displaced() if self._nominated_others else (),
        )
        self._transaction.unplace()
        return eviction


def _holding(
    late: Mapping[AccountRecord, Mapping[str, int]],
    known: dict[AccountRecord, dict[str, int]],
    account: AccountRecord,
) -> Mapping[str, int]:
    """Return the usage of an account after all terminating pods have left.

    `late` are the amounts of those that leave late; the others are already removed from the usage.
    """
    amounts = known.get(account)
    if amounts is None:
        amounts = known[account] = dict(account.used)
        add_amounts(amounts, late.get(account, {}), -1)
    return amounts
