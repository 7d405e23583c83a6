"""Choice of victims from candidates: as few as possible in the given order, or a cheaper set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.preemption.preemptor import Preemptor
from phalanx.scheduling.preemption.rules.eviction_limits import EvictionLimits
from phalanx.scheduling.preemption.search.removed_victims import AffinityDependents, RemovedVictims
from phalanx.scheduling.preemption.search.victim_sequence import (
    SearchContext,
    admissible,
    possible_order,
    smallest_first,
    without_members_of_whole,
)
from phalanx.scheduling.preemption.solution import Eviction, EvictionCost, cost_of, victim_cost
from phalanx.scheduling.preemption.victims import VictimCandidate

MakeSolution = Callable[[RemovedVictims, Sequence[VictimCandidate]], Eviction | None]
"""Factory of an eviction from the removed victims; None if the preemptor still does not fit."""

# The work of a search is counted in visited pods and nodes, not in time: equal questions get equal answers.
_FIND = 80_000
_IMPROVE = 16_000
_FEWEST_TRIES = 24
_LOOK, _MOVE = 6, 4
_CHEAP = 400
# Up to this many victims, each is put back in turn and the preemptor is placed again. Above it, only victims whose
# room the placement does not use are put back.
_RETRIES = 64
# Up to this many candidates are searched exhaustively.
_FEW = 16
# Largest number of candidates among which a cheaper choice is searched.
_CHOICE = 200


class WorkLimit:
    """Work that is left to find any choice (`begin_finding`) and to improve it (`begin_improving`).

    One placement costs `per_try`.
    """

    def __init__(self, per_try: int) -> None:
        self._per_try = per_try
        self._remaining = self._to_find = max(_FIND, _FEWEST_TRIES * per_try)
        self._to_improve = max(_IMPROVE, _FEWEST_TRIES // 2 * per_try)
        self._improving = False

    @property
    def remains(self) -> bool:
        return self._remaining > 0

    @property
    def cheap(self) -> bool:
        """Whether a placement is cheap enough to try several orders."""
        return self._per_try <= _CHEAP

    def begin_finding(self) -> None:
        """Charge the work that follows to finding a choice."""
        if self._improving:
            self._to_improve, self._remaining, self._improving = self._remaining, self._to_find, False

    def begin_improving(self) -> None:
        """Charge the work that follows to improving the choice."""
        if not self._improving:
            self._to_find, self._remaining, self._improving = self._remaining, self._to_improve, True

    def count_try(self) -> None:
        self._remaining -= self._per_try

    def count_looks(self, victims: int) -> None:
        """Charge the check of this many victims."""
        self._remaining -= _LOOK * victims

    def count_moves(self, victims: Sequence[VictimCandidate]) -> None:
        """Charge the removal of the victims' pods from their nodes, or their return."""
        self._remaining -= _MOVE * sum(len(victim.records) for victim in victims)


class VictimChoice:
    """Search for the best victims within a transaction.

    `fits` returns whether the preemptor can be placed now; `outcome` makes an eviction of the removed victims.
    """

    def __init__(
        self,
        context: SearchContext,
        preemptor: Preemptor,
        transaction: Transaction,
        work_limit: WorkLimit,
        fits: Callable[[], bool],
        outcome: MakeSolution,
    ) -> None:
        self._context = context
        self._preemptor = preemptor
        self._transaction = transaction
        self._work_limit = work_limit
        self._fits = fits
        self._make_solution = outcome
        self._removed = RemovedVictims(context, transaction, AffinityDependents(context.session, preemptor.classes))

    def best_of(
        self, orders: Iterable[list[VictimCandidate]], candidates: Sequence[VictimCandidate]
    ) -> Eviction | None:
        """Return the cheapest eviction over all orders, improved; few candidates are searched exhaustively."""
        best: Eviction | None = None
        self._work_limit.begin_finding()
        for order in orders:
            eviction = self._lower_priorities_first(self.shrink(order), candidates)
            if eviction is not None and (best is None or eviction.cost < best.cost):
                best = eviction
            if best is not None and (len(candidates) > _CHOICE or not self._work_limit.cheap):
                break
        self._work_limit.begin_improving()
        if len(candidates) <= _FEW:
            return self._exhaustive(candidates, best)
        return self._improve(best, candidates) if best is not None else None

    def _lower_priorities_first(
        self, eviction: Eviction | None, candidates: Sequence[VictimCandidate]
    ) -> Eviction | None:
        """Replace reclaimed victims by victims of lower priority from the same queue where these make enough room.

        The shortfall of a queue decides between queues, not between the pods of one queue.
        """
        while eviction is not None:
            replaced = self._replaced_by_lower(eviction, candidates)
            if replaced is None:
                return eviction
            eviction = replaced
        return None

    def _replaced_by_lower(self, eviction: Eviction, candidates: Sequence[VictimCandidate]) -> Eviction | None:
        highest: dict[tuple[AccountRecord, ...], int] = {}
        for victim in eviction.victims:
            if not victim.preempted:
                accounts = victim.reclaimed_accounts
                highest[accounts] = max(highest.get(accounts, victim.priority), victim.priority)
        for accounts, priority in highest.items():
            lower = [
                victim
                for victim in candidates
                if victim.priority < priority and not victim.preempted and victim.reclaimed_accounts == accounts
            ]
            if not lower or not self._work_limit.remains:
                continue
            kept = [victim for victim in eviction.victims if victim.reclaimed_accounts != accounts]
            replaced = self.shrink([*kept, *smallest_first(self._context, lower)])
            if replaced is not None and replaced.cost.without_shortfall < eviction.cost.without_shortfall:
                return replaced
        return None

    def nobody_evicted(self) -> Eviction | None:
        """Return the eviction without victims."""
        return self._make_solution(self._removed, [])

    def shrink(self, order: Sequence[VictimCandidate]) -> Eviction | None:
        """Return the shortest sufficient prefix of the order, without victims that are not needed."""
        taken, sequence = self._removed, admissible(self._context, order)
        self._work_limit.count_looks(len(order))
        # Grow the prefix from a small start: usually a few victims suffice.
        low, high = 0, min(len(sequence), self._preemptor.total)
        self._remove(sequence[:high])
        removed = high
        while not self._fits():
            if high == len(sequence):
                self._put_back(sequence)
                return None
            low, high = high + 1, min(len(sequence), 4 * high)
            self._remove(sequence[removed:high])
            removed = high
        while low < high and self._work_limit.remains:
            middle = (low + high) // 2
            if middle < removed:
                self._put_back(sequence[middle:removed])
            else:
                self._remove(sequence[removed:middle])
            removed = middle
            if self._fits():
                high = middle
            else:
                low = middle + 1
        if removed < high:
            self._remove(sequence[removed:high])
        elif removed > high:
            self._put_back(sequence[high:removed])
        chosen = self._without_needless(list(sequence[:high]))
        eviction = self._make_solution(taken, chosen)
        self._put_back(chosen)
        return eviction

    def _remove(self, victims: Sequence[VictimCandidate]) -> None:
        self._work_limit.count_moves(victims)
        self._removed.remove(victims)

    def _put_back(self, victims: Sequence[VictimCandidate]) -> None:
        self._work_limit.count_moves(victims)
        self._removed.put_back(victims)

    def _without_needless(self, victims: list[VictimCandidate]) -> list[VictimCandidate]:
        """Put back victims that are not needed, the most valuable first."""
        if len(victims) > _RETRIES:
            victims = self._without_untouched(victims)
        if len(victims) <= _RETRIES:
            for victim in sorted(victims, key=lambda victim: victim.order_key, reverse=True):
                if not self._work_limit.remains:
                    break
                if victim not in without_members_of_whole(victims):
                    continue
                self._put_back([victim])
                if self._fits():
                    victims.remove(victim)
                else:
                    self._remove([victim])
        kept = without_members_of_whole(victims)
        self._put_back([victim for victim in victims if victim not in kept])
        return kept

    def _without_untouched(self, chosen: list[VictimCandidate]) -> list[VictimCandidate]:
        """Put back victims if the present placement of the preemptor does not use their room."""
        session, taken = self._context.session, self._removed
        if self._preemptor.place(session, self._transaction) is not None:
            return chosen
        kept = dict.fromkeys(chosen)
        for victim in reversed(chosen):
            if taken.could_stay(victim):
                taken.put_back([victim])
                if self._accounts_hold(victim):
                    del kept[victim]
                else:
                    taken.remove([victim])
        self._transaction.unplace()
        if self._fits():
            return list(kept)
        taken.remove(
            [victim for victim in chosen if victim not in kept]
        )  # unreachable: the same placement fitted just now
        return chosen

    def _accounts_hold(self, victim: VictimCandidate) -> bool:
        """Return whether no account that the preemptor and the victim share is over its limit."""
        overdrawn = self._context.session.quota_check.overdrawn(self._preemptor.charge_paths)
        return not any(account in charge_path.path for account in overdrawn for charge_path in victim.amounts)

    def _improve(self, best: Eviction, candidates: Sequence[VictimCandidate]) -> Eviction:
        """Replace victims by cheaper ones, the most valuable victim first."""
        rows = {row for _, row in best.placements}
        if len(best.victims) <= _FEW // 2:
            near = [v for v in candidates if v not in best.victims and not rows.isdisjoint(v.rows)]
            eviction = self._exhaustive([*best.victims, *near[: _FEW - len(best.victims)]], best)
            best = eviction if eviction is not None else best
        if self._preemptor.total == 1 and all(not rows.isdisjoint(victim.rows) for victim in best.victims):
            return best  # each node was already compared for a single pod
        tried: set[VictimCandidate] = set()
        while self._work_limit.remains:
            worst = next((v for v in sorted(best.victims, key=victim_cost, reverse=True) if v not in tried), None)
            if worst is None:
                return best
            tried.add(worst)
            remaining = [victim for victim in best.victims if victim is not worst]
            cheaper = [v for v in candidates[:_CHOICE] if v is not worst and victim_cost(v) <= victim_cost(worst)]
            order = [*remaining, *(victim for victim in cheaper if victim not in remaining)]
            eviction = self._lower_priorities_first(self.shrink(order), candidates)
            if eviction is not None and eviction.cost.decisive < best.cost.decisive:
                best = eviction
        return best

    def _exhaustive(self, candidates: Sequence[VictimCandidate], best: Eviction | None) -> Eviction | None:
        search = ExhaustiveSearch(
            self._context,
            self._removed,
            self._fits,
            self._work_limit,
            self._make_solution,
            lambda eviction: self._lower_priorities_first(eviction, candidates),
        )
        return search.best_choice(candidates, best)


class ExhaustiveSearch:
    """Branch and bound over candidates, the most valuable first.

    A candidate is kept if the preemptor fits without all undecided candidates; else, or in a second branch, it is
    evicted. Branches that cost as much as the best eviction so far are cut. Once the `work_limit` is spent, the
    best eviction so far is returned. `revise` may replace an eviction of reclaimed victims.
    """

    def __init__(
        self,
        context: SearchContext,
        taken: RemovedVictims,
        fits: Callable[[], bool],
        work_limit: WorkLimit,
        outcome: MakeSolution,
        revise: Callable[[Eviction], Eviction | None],
    ) -> None:
        self._context = context
        self._revise = revise
        self._removed = taken
        self._fits = fits
        self._work_limit = work_limit
        self._make_solution = outcome
        self._best: Eviction | None = None
        self._victims: list[VictimCandidate] = []
        self._twins: list[object] = []

    def best_choice(self, candidates: Sequence[VictimCandidate], best: Eviction | None) -> Eviction | None:
        """Return the best eviction: `best` unless a cheaper one is found."""
        self._best = best
        # Sort whole gangs before their single members.
        self._victims = sorted(candidates, key=lambda victim: (victim_cost(victim), victim.order_key), reverse=True)
        self._twins = [_twin(victim) for victim in self._victims]
        # Rules judge candidates by the usage of accounts before any removal.
        accounts = {
            account for victim in candidates for charge_path in victim.amounts for account in charge_path.path
        }
        holdings = {account: dict(self._context.holding(account)) for account in accounts}
        self._context = self._context._replace(holding=holdings.__getitem__)
        self._removed.remove(self._victims)
        if self._fits():
            self._decide(0, [])
        self._removed.put_back(self._victims)
        return self._best

    def _decide(self, place: int, chosen: list[VictimCandidate]) -> None:
        if place == len(self._victims):
            eviction = self._make_solution(self._removed, chosen)
            if eviction is None or not self._is_better(eviction):
                return
            if any(not victim.preempted for victim in chosen):
                self._removed.put_back(chosen)
                eviction = self._revise(eviction)
                self._removed.remove(chosen)
            if eviction is not None and self._is_better(eviction):
                self._best = eviction
            return
        victim = self._victims[place]
        absorbed = any(other.whole and not set(other.gangs).isdisjoint(victim.gangs) for other in chosen)
        # Of equal candidates the one with the least lost work is evicted first: it sorts last here.
        forced = self._twins[place] is not None and any(
            other in chosen and self._twins[number] == self._twins[place]
            for number, other in enumerate(self._victims[:place])
        )
        if not forced or absorbed:
            self._removed.put_back([victim])
            if absorbed or (self._work_limit.remains and self._fits()):
                self._decide(place + 1, chosen)
            self._removed.remove([victim])
        extended = [*chosen, victim]
        if absorbed or not self._work_limit.remains:
            return
        if self._best is not None and self._cost(extended).decisive >= self._best.cost.decisive:
            return
        self._work_limit.count_looks(len(extended))
        if possible_order(self._context, extended) is not None:
            self._decide(place + 1, extended)

    def _is_better(self, eviction: Eviction) -> bool:
        return self._best is None or eviction.cost.decisive < self._best.cost.decisive

    def _cost(self, chosen: Sequence[VictimCandidate]) -> EvictionCost:
        limits = EvictionLimits(self._context.session, self._context.log)
        for victim in chosen:
            for record in victim.records:
                if record.pod.budgets:
                    limits.count_eviction(record, 1)
        return cost_of(chosen, limits.violations, self._context.holding)


def _twin(victim: VictimCandidate) -> object:
    """Return a key that is equal for pods on their own that differ only in lost work; None for other victims."""
    record = victim.records[0]
    if victim.gangs or record.pod_class.dynamic:
        return None
    return record.row, record.pod_class, record.footprint, record.charge_path, victim.priority, record.pod.budgets
