"""Making room: which pods must go so that all of a beneficiary fits, or that no choice of them would help.

A search tries on the live arrays, within one transaction that is rolled back in any case: who is leaving anyway is
taken off first, then victims, in the policy's order, until the whole beneficiary can be placed under every filter
and every ceiling; then each victim that is not needed comes back. Nothing is evicted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from phalanx.cluster.accounts import AccountRecord, add_amounts
from phalanx.cluster.pods.nominations import Claim
from phalanx.cluster.pods.records import PodRecord
from phalanx.model.pod import CAN_LEAVE
from phalanx.scheduling.diagnosis.shortage import Gap, Shortage
from phalanx.scheduling.framework.eviction_options import EvictionOptions
from phalanx.scheduling.preemption.cost import cost_of
from phalanx.scheduling.preemption.preemptor import Beneficiary
from phalanx.scheduling.preemption.reclaimees import Lenders, Level, level_of
from phalanx.scheduling.preemption.rules.eviction_limits import Delays
from phalanx.scheduling.preemption.rules.self_protection import objection
from phalanx.scheduling.preemption.search.candidate_nodes import Whereabouts
from phalanx.scheduling.preemption.search.choice import Choice
from phalanx.scheduling.preemption.search.removed import Taken
from phalanx.scheduling.preemption.search.victim_orders import orders
from phalanx.scheduling.preemption.search.victim_sequence import Rules
from phalanx.scheduling.preemption.search.work_limit import Effort
from phalanx.scheduling.preemption.solution import Eviction, Futile
from phalanx.scheduling.preemption.victims import Roster, Victim, lost_work
from phalanx.scheduling.quota.limits import OverQuota
from phalanx.scheduling.session.eviction_log import EvictionLog
from phalanx.scheduling.session.session import Session

# Beyond so many pods that may go, levels and rows are singled out before any pod is looked at.
_FEW_PODS = 2000
# A pod that is still terminating so many seconds after its grace is over is not counted on any more.
_OVERDUE = 60
# One that has longer still is not waited for by whoever could do without (seconds).
SOON = 300
# Room that has been promised to so many one after the other is left to the last.
_MOST_HANDS = 3


class Search:
    """One question; `run` answers it. `bound` tells whether grounds, vetoes and caps hold."""

    bound: ClassVar[bool] = True

    def __init__(
        self, session: Session, beneficiary: Beneficiary, options: EvictionOptions, log: EvictionLog
    ) -> None:
        self._session = session
        self._for = beneficiary
        self._options = options
        self._log = log
        self._effort = Effort(
            32 * len(beneficiary.classes) + 8 * beneficiary.total + session.state.nodes.extent // 8
        )
        self._late: dict[AccountRecord, dict[str, int]] = {}
        self._held: dict[AccountRecord, dict[str, int]] = {}
        self._cut: Level | None = None
        self._leaving: list[PodRecord] = []
        self._rivals: list[PodRecord] = []
        self._again: float | None = None
        self._delays = Delays()
        self._judged: dict[str, bool] = {}
        self._found: dict[tuple[int, Level | None], list[PodRecord]] = {}
        self._refused: Counter[str] = Counter()
        self._works: dict[str, float] = {}
        self._totals = session.totals()

    def run(self) -> Eviction | Futile:
        state = self._session.state
        if self.bound and not self._for.preempts:
            return Futile(None, 0, (("the beneficiary's preemptionPolicy is Never", 0),))
        self._lenders = self._find_lenders()
        self._rules = Rules(
            self._session,
            self._log,
            self._holding,
            self._delays,
            self.bound,
            self._lenders.levelling,
            self._lenders.overrules,
        )
        if self.bound and not self._lenders.anybody and not (state.leaving or state.promised or self._for.claimed):
            # Nothing is different from what it was when the beneficiary found no room.
            return self._futile(None)
        # Shares follow from what everybody wants: they must not be worked out while some are tentatively gone.
        for payer in self._for.payers:
            self._session.quota_check.bars(payer)
        transaction = self._transaction = state.transaction()
        transaction.lift(self._for.claimed)
        self._leaving = [record for record in state.leaving.values() if self._will_leave(record)]
        transaction.remove(self._leaving)
        for record in state.leaving.values():
            if record not in self._leaving and record.payer is not None and record.pod.node:
                for account in record.payer.path:
                    add_amounts(self._late.setdefault(account, {}), record.footprint.amounts, 1)
        own = set(self._for.claimed)
        self._rivals = [r for r in state.promised.values() if r not in own and self._gives_way(r)]
        try:
            return self._search()
        finally:
            transaction.rollback()

    def _search(self) -> Eviction | Futile:
        choice = Choice(
            self._rules, self._for, self._transaction, self._effort, lambda: self._try() is None, self._outcome
        )
        facts = self._try()
        rivals, self._rivals = self._rivals, []
        if facts is not None and rivals:
            # Only who does not fit beside what is promised to others takes it.
            self._rivals = rivals
            self._transaction.lift(rivals)
            facts = self._try()
        if facts is None:
            found = choice.nobody()
            assert found is not None
            return found
        # Ports, devices and other pods' rules are not part of the sums that would be freed.
        tells = not any(cls.dynamic for cls in self._for.classes)
        arriving = bool(self._lenders.arriving.any())
        if not self._lenders.anybody:
            return self._futile(facts)
        if tells or not self._lenders.pods:
            without = self._try_without(None)
            if without is not None:
                unripe = arriving and (not tells or self._try_without(None, arriving=True) is None)
                return self._futile(without, unripe)
        near = self._nearby(choice)
        if near is not None:
            return near
        for candidates in self._rounds():
            best: Eviction | None = None
            for group in self._groups(candidates):
                found = choice.of(orders(self._rules, self._for, group), group)
                if found is not None and (best is None or found.cost < best.cost):
                    best = found
            if best is not None:
                return best
        return self._futile(facts, arriving)

    def _nearby(self, choice: Choice) -> Eviction | None:
        """The best choice within one of the domains that would take the beneficiary if all went who may go: of too
        many those in which most of it fits already."""
        if self._for.near is None:
            return None
        (area, want), domains, best = self._for.near, self._session.topology_domains, None
        sums = self._lenders.sums(None)
        self._transaction.remove_sums(sums.freed, sums.charges)
        promising = domains.promising(area, want)
        self._transaction.put_back_sums()
        ranked = sorted(promising, key=lambda domain: -domains.placeable(domain, area, want))
        here = self._lenders.rows()
        for domain in ranked[: domains.most_for_evictions]:
            rows = domain.rows
            candidates = self._candidates([row for row in here if rows[row]])
            with self._session.placer.within(rows):
                found = choice.of(orders(self._rules, self._for, candidates), candidates) if candidates else None
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        return best

    # asking

    def _find_lenders(self) -> Lenders:
        return lenders_for(self._session, self._for, self._options)

    def _try(self) -> Shortage | Gap | OverQuota | None:
        """Whether the beneficiary fits now; nothing stays placed."""
        self._effort.attempt()
        facts = self._for.place(self._session, self._transaction)
        self._transaction.unplace()
        return facts

    def _try_without(self, most: Level | None, arriving: bool = False) -> Shortage | Gap | OverQuota | None:
        """The same without everybody who may go up to a level, gangs and vetoes of single pods aside; and without
        those who may once they have arrived."""
        sums = self._lenders.sums(most, arriving)
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
        if record.claim is not None and record.claim.hands >= _MOST_HANDS:
            return False
        return record.payer is not None and not isinstance(self._lenders.may_lend(record), str)

    def _losers(self) -> tuple[PodRecord, ...]:
        """Those whose claims the beneficiary takes, while it is placed; all others' stand again for this look."""
        claims: dict[Claim, list[PodRecord]] = {}
        for record in self._rivals:
            if record.claim is not None:
                claims.setdefault(record.claim, []).append(record)
        losers: list[PodRecord] = []
        priority = self._session.priority
        for records in sorted(
            claims.values(), key=lambda them: -max(priority(r.gang if r.gang is not None else r) for r in them)
        ):
            self._transaction.relend(records)
            if not (self._rows_hold({r.row for r in records if r.row >= 0}) and self._accounts_hold()):
                self._transaction.lift(records)
                losers += records
        self._transaction.lift(self._rivals)
        return tuple(losers)

    def _rows_hold(self, rows: set[int]) -> bool:
        """Whether nothing is given away twice on these rows."""
        return not (self._session.state.nodes.idle[:, sorted(rows)] < 0).any()

    def _needed(self) -> tuple[PodRecord, ...]:
        """Those who leave anyway and whose room is counted on, while the beneficiary is placed: on the nodes that
        it uses, or in its accounts."""
        rows = {row for _, row in self._for.placed}
        here = [record for record in self._leaving if record.row in rows]
        elsewhere = [record for record in self._leaving if record.row not in rows]
        self._transaction.put_back(elsewhere)
        if not self._accounts_hold():
            accounts = {bar.account for payer in self._for.payers for bar in self._session.quota_check.bars(payer)}
            here += [r for r in elsewhere if r.payer is not None and not accounts.isdisjoint(r.payer.path)]
        self._transaction.remove(elsewhere)
        return tuple(here)

    def _accounts_hold(self) -> bool:
        """Whether no account of the beneficiary holds more than it may of what the beneficiary asks for."""
        return not any(self._session.quota_check.overdrawn(self._for.payers))

    def _futile(self, facts: Shortage | Gap | OverQuota | None, unripe: bool = False) -> Futile:
        refused = self._lenders.refused + self._refused + Counter(self._delays.counts())
        ends = [when for when in (self._again, self._delays.until) if when is not None]
        ranked = sorted(refused.items(), key=lambda entry: (-entry[1], entry[0]))
        return Futile(facts, self._lenders.pods, tuple(ranked), min(ends, default=None), unripe)

    # candidates

    def _rounds(self) -> Iterable[list[Victim]]:
        """Candidates in order: of few all, of many first those of the lowest levels on the most promising nodes."""
        lenders = self._lenders
        if lenders.pods <= _FEW_PODS:
            yield self._candidates(lenders.rows())
            return
        everybody = lenders.pods
        self._cut_levels()
        for cut in (self._cut, None):
            self._cut = cut
            if cut is None:
                if lenders.pods == everybody:
                    return
                lenders.keep_all()
            if lenders.pods <= _FEW_PODS:
                yield self._candidates(lenders.rows())
            else:
                for rows in Whereabouts(self._session, self._for, lenders).windows():
                    yield self._candidates(rows)

    def _cut_levels(self) -> None:
        """Leaves those alone who come last in the order, as far as the others suffice."""
        lenders = self._lenders
        levels = sorted(set(lenders.levels.values()))
        low, high = 0, len(levels) - 1
        while low < high:
            middle = (low + high) // 2
            if self._try_without(levels[middle]) is None:
                high = middle
            else:
                low = middle + 1
        self._cut = levels[high]
        lenders.keep_levels(levels[high])

    def _candidates(self, rows: Iterable[int]) -> list[Victim]:
        session = self._session
        records = [record for row in rows for record in self._tenants(row)]
        roster = Roster(
            session.state, self._lenders.grounds, self._may_go, session.victim_priority, self._work, self._for.gangs
        )
        found = roster.of(records)
        found = [victim for victim in found if not victim.whole or self._whole_gangs(victim)]
        orders = session.pipeline.plugins("victim_order")
        for victim in found:
            opinions = tuple(plugin.victim_order(session, victim.records[0]) for plugin in orders)
            victim.exposed = self._exposed(victim)
            victim.key = (
                victim.preempted,
                victim.distance,
                -victim.excess,
                victim.priority,
                victim.exposed > 0,
                victim.breaks > 0,
                victim.importance,
                opinions,
                victim.work,
                -victim.youngest,
                victim.name,
            )
        return sorted(found, key=lambda victim: victim.key)

    def _tenants(self, row: int) -> list[PodRecord]:
        """Those on a row who are in question; of pods on their own only those who may go."""
        key = (row, self._cut)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = [
                record
                for record in self._session.state.tenants(row)
                if self._in_question(record) and (record.gang is not None or self._may_go(record))
            ]
        return found

    def _lent(self, record: PodRecord) -> bool:
        """Whether the pod is of a kind that may go."""
        return record.payer is not None and not isinstance(self._lenders.may_lend(record), str)

    def _in_question(self, record: PodRecord) -> bool:
        """The same, less those of levels beyond what is needed."""
        if record.payer is None:
            return False
        ground = self._lenders.may_lend(record)
        if isinstance(ground, str):
            return False
        if self._cut is None:
            return True
        own, gang = record.pod.priority, record.gang
        priority = own if gang is None else self._session.victim_priority(gang, own)
        return level_of(ground, priority) <= self._cut

    def _may_go(self, record: PodRecord) -> bool:
        found = self._judged.get(record.pod.uid)
        if found is None:
            found = self._judged[record.pod.uid] = self._judge(record)
        return found

    def _judge(self, record: PodRecord) -> bool:
        if record.state not in CAN_LEAVE or record.payer is None:
            return False
        ground = self._lenders.may_lend(record)
        if isinstance(ground, str):
            return False
        spared = objection(self._session, record, ground)
        if spared is None:
            return True
        self._refused[f"each {spared.why}"] += 1
        if spared.until is not None:
            self._again = spared.until if self._again is None else min(self._again, spared.until)
        return False

    def _work(self, record: PodRecord) -> float:
        uid = record.pod.uid
        if uid not in self._works:
            self._works[uid] = lost_work(record, self._session.now, self._totals)
        return self._works[uid]

    def _exposed(self, victim: Victim) -> int:
        budgets = self._session.state.budgets
        return sum(
            1
            for record in (victim.records if budgets else ())
            for name in record.pod.budgets
            if (budget := budgets.get(record.pod.namespace, {}).get(name)) is not None and budget.allowed <= 0
        )

    def _whole_gangs(self, victim: Victim) -> bool:
        options = self._options
        return options.preempt_whole_gangs if victim.preempted else options.reclaim_whole_gangs

    # choosing

    def _groups(self, candidates: list[Victim]) -> list[list[Victim]]:
        """The candidates of whom some may go together."""
        options = self._options
        if not (options.preempt_on_single_node or options.reclaim_on_single_node):
            return [candidates]
        on_row: dict[int, list[Victim]] = {}
        for victim in candidates:
            rows = set(victim.rows)
            if len(rows) == 1:
                on_row.setdefault(rows.pop(), []).append(victim)
        return [on_row[row] for row in sorted(on_row)]

    def _outcome(self, taken: Taken, chosen: Sequence[Victim]) -> Eviction | None:
        if self._for.place(self._session, self._transaction) is not None:
            return None
        found = Eviction(
            tuple(chosen),
            tuple(self._for.placed),
            self._needed(),
            cost_of(chosen, taken.violations, self._holding),
            self._losers() if self._rivals else (),
        )
        self._transaction.unplace()
        return found


def lenders_for(session: Session, beneficiary: Beneficiary, options: EvictionOptions) -> Lenders:
    """Who may go for a beneficiary under a policy's options."""
    return Lenders(
        session,
        beneficiary,
        preempt=options.preempt,
        reclaim=options.reclaim,
        foreign=options.foreign_victims,
    )
