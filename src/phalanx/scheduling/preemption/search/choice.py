"""Which of some candidates go: as few as can be, in the order in which they are offered, or for less."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.preemption.preemptor import Preemptor
from phalanx.scheduling.preemption.rules.eviction_limits import EvictionLimits
from phalanx.scheduling.preemption.search.removed_victims import AffinityDependents, RemovedVictims
from phalanx.scheduling.preemption.search.victim_sequence import (
    SearchContext,
    admissible,
    possible_order,
    without_members_of_whole,
)
from phalanx.scheduling.preemption.solution import Eviction, EvictionCost, cost_of, victim_cost
from phalanx.scheduling.preemption.victims import VictimCandidate

MakeSolution = Callable[[RemovedVictims, Sequence[VictimCandidate]], Eviction | None]
"""What makes an answer of the victims that are off, if that answers the question."""

# The work of a search is counted, not timed, in looks at a pod or a node: equal questions get equal answers.
_FIND = 80_000
_IMPROVE = 16_000
_FEWEST_TRIES = 24
_LOOK, _MOVE = 6, 4
_CHEAP = 400
# Up to so many victims each is tried without, everything placed anew; beyond, only what is not touched comes back.
_RETRIES = 64
# So few candidates are looked through completely.
_FEW = 16
# A better choice is looked for among so many candidates at most.
_CHOICE = 200


class WorkLimit:
    """What is left for finding a choice at all (`begin_finding`), and for better ones
    (`begin_improving`). A try costs `per_try`."""

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
        """Whether a try costs little, so that several ways to the same end can be tried."""
        return self._per_try <= _CHEAP

    def begin_finding(self) -> None:
        """From now on something is to be found at all."""
        if self._improving:
            self._to_improve, self._remaining, self._improving = self._remaining, self._to_find, False

    def begin_improving(self) -> None:
        """From now on something better is to be found."""
        if not self._improving:
            self._to_find, self._remaining, self._improving = self._remaining, self._to_improve, True

    def count_try(self) -> None:
        self._remaining -= self._per_try

    def count_looks(self, victims: int) -> None:
        """So many victims are asked about."""
        self._remaining -= _LOOK * victims

    def count_moves(self, victims: Sequence[VictimCandidate]) -> None:
        """The pods of these are taken off their nodes, or put back."""
        self._remaining -= _MOVE * sum(len(victim.records) for victim in victims)


class VictimChoice:
    """Tries choices within a transaction. `fits` tells whether the preemptor can be placed now, `outcome` makes
    an answer of those who are off."""

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
        """The best that is found when candidates go in one of the orders, or in whatever way if they are few."""
        best: Eviction | None = None
        self._work_limit.begin_finding()
        for order in orders:
            found = self.shrink(order)
            if found is not None and (best is None or found.cost < best.cost):
                best = found
            if best is not None and (len(candidates) > _CHOICE or not self._work_limit.cheap):
                break
        self._work_limit.begin_improving()
        if len(candidates) <= _FEW:
            return self._exhaustive(candidates, best)
        return self._improve(best, candidates) if best is not None else None

    def nobody_evicted(self) -> Eviction | None:
        """The answer if nobody has to go."""
        return self._make_solution(self._removed, [])

    def shrink(self, order: Sequence[VictimCandidate]) -> Eviction | None:
        """The smallest part of the order from its beginning that suffices, less everybody who is not needed."""
        taken, sequence = self._removed, admissible(self._context, order)
        self._work_limit.count_looks(len(order))
        # First a few, then ever more: mostly few suffice.
        low, high = 0, min(len(sequence), self._preemptor.total)
        self._remove(sequence[:high])
        gone = high
        while not self._fits():
            if high == len(sequence):
                self._put_back(sequence)
                return None
            low, high = high + 1, min(len(sequence), 4 * high)
            self._remove(sequence[gone:high])
            gone = high
        while low < high and self._work_limit.remains:
            middle = (low + high) // 2
            if middle < gone:
                self._put_back(sequence[middle:gone])
            else:
                self._remove(sequence[gone:middle])
            gone = middle
            if self._fits():
                high = middle
            else:
                low = middle + 1
        if gone < high:
            self._remove(sequence[gone:high])
        elif gone > high:
            self._put_back(sequence[high:gone])
        chosen = self._without_needless(list(sequence[:high]))
        found = self._make_solution(taken, chosen)
        self._put_back(chosen)
        return found

    def _remove(self, victims: Sequence[VictimCandidate]) -> None:
        self._work_limit.count_moves(victims)
        self._removed.remove(victims)

    def _put_back(self, victims: Sequence[VictimCandidate]) -> None:
        self._work_limit.count_moves(victims)
        self._removed.put_back(victims)

    def _without_needless(self, chosen: list[VictimCandidate]) -> list[VictimCandidate]:
        """Gives back who is not needed, the most valuable first."""
        if len(chosen) > _RETRIES:
            chosen = self._without_untouched(chosen)
        if len(chosen) <= _RETRIES:
            for victim in sorted(chosen, key=lambda victim: victim.order_key, reverse=True):
                if not self._work_limit.remains:
                    break
                if victim not in without_members_of_whole(chosen):
                    continue
                self._put_back([victim])
                if self._fits():
                    chosen.remove(victim)
                else:
                    self._remove([victim])
        kept = without_members_of_whole(chosen)
        self._put_back([victim for victim in chosen if victim not in kept])
        return kept

    def _without_untouched(self, chosen: list[VictimCandidate]) -> list[VictimCandidate]:
        """Gives back those whose room nobody takes where the preemptor is now."""
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
        taken.remove([victim for victim in chosen if victim not in kept])  # cannot be: it was placed just so
        return chosen

    def _accounts_hold(self, victim: VictimCandidate) -> bool:
        """Whether no account of the preemptor in which the victim stands holds too much."""
        overdrawn = self._context.session.quota_check.overdrawn(self._preemptor.charge_paths)
        return not any(account in charge_path.path for account in overdrawn for charge_path in victim.amounts)

    def _improve(self, best: Eviction, candidates: Sequence[VictimCandidate]) -> Eviction:
        """Tries to do without each victim, the most valuable first, at the cost of cheaper ones."""
        rows = {row for _, row in best.placements}
        if len(best.victims) <= _FEW // 2:
            near = [v for v in candidates if v not in best.victims and not rows.isdisjoint(v.rows)]
            found = self._exhaustive([*best.victims, *near[: _FEW - len(best.victims)]], best)
            best = found if found is not None else best
        if self._preemptor.total == 1 and all(not rows.isdisjoint(victim.rows) for victim in best.victims):
            return best  # of one pod's nodes each has been weighed
        tried: set[VictimCandidate] = set()
        while self._work_limit.remains:
            worst = next((v for v in sorted(best.victims, key=victim_cost, reverse=True) if v not in tried), None)
            if worst is None:
                return best
            tried.add(worst)
            others = [victim for victim in best.victims if victim is not worst]
            cheaper = [v for v in candidates[:_CHOICE] if v is not worst and victim_cost(v) <= victim_cost(worst)]
            found = self.shrink([*others, *(victim for victim in cheaper if victim not in others)])
            if found is not None and found.cost.decisive < best.cost.decisive:
                best = found
        return best

    def _exhaustive(self, candidates: Sequence[VictimCandidate], best: Eviction | None) -> Eviction | None:
        search = ExhaustiveSearch(self._context, self._removed, self._fits, self._work_limit, self._make_solution)
        return search.best_choice(candidates, best)


class ExhaustiveSearch:
    """Decides on one candidate after the other, the most valuable first: it stays, if the preemptor would fit
    were everybody gone on whom is not decided yet, or it goes. What costs as much as the best so far is left.

    `fits` tells whether the preemptor can be placed now. Once the `work_limit` is spent the best so far is it.
    """

    def __init__(
        self,
        context: SearchContext,
        taken: RemovedVictims,
        fits: Callable[[], bool],
        work_limit: WorkLimit,
        outcome: MakeSolution,
    ) -> None:
        self._context = context
        self._removed = taken
        self._fits = fits
        self._work_limit = work_limit
        self._make_solution = outcome
        self._best: Eviction | None = None
        self._victims: list[VictimCandidate] = []
        self._twins: list[object] = []

    def best_choice(self, candidates: Sequence[VictimCandidate], best: Eviction | None) -> Eviction | None:
        """The best choice, if it is better than what is known (`best`)."""
        self._best = best
        # A whole gang comes before its single members.
        self._victims = sorted(candidates, key=lambda victim: (victim_cost(victim), victim.order_key), reverse=True)
        self._twins = [_twin(victim) for victim in self._victims]
        # Candidates are judged by what accounts hold before anybody is off.
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
            found = self._make_solution(self._removed, chosen)
            if found is not None and (self._best is None or found.cost.decisive < self._best.cost.decisive):
                self._best = found
            return
        victim = self._victims[place]
        absorbed = any(other.whole and not set(other.gangs).isdisjoint(victim.gangs) for other in chosen)
        # Of those who are alike the one with the least to lose goes first: it comes last here.
        forced = self._twins[place] is not None and any(
            other in chosen and self._twins[number] == self._twins[place]
            for number, other in enumerate(self._victims[:place])
        )
        if not forced or absorbed:
            self._removed.put_back([victim])
            if absorbed or (self._work_limit.remains and self._fits()):
                self._decide(place + 1, chosen)
            self._removed.remove([victim])
        more = [*chosen, victim]
        if absorbed or not self._work_limit.remains:
            return
        if self._best is not None and self._cost(more).decisive >= self._best.cost.decisive:
            return
        self._work_limit.count_looks(len(more))
        if possible_order(self._context, more) is not None:
            self._decide(place + 1, more)

    def _cost(self, chosen: Sequence[VictimCandidate]) -> EvictionCost:
        limits = EvictionLimits(self._context.session, self._context.log)
        for victim in chosen:
            for record in victim.records:
                if record.pod.budgets:
                    limits.count_eviction(record, 1)
        return cost_of(chosen, limits.violations, self._context.holding)


def _twin(victim: VictimCandidate) -> object:
    """Equal for pods on their own that nothing but what they would lose tells apart; None for others."""
    record = victim.records[0]
    if victim.gangs or record.pod_class.dynamic:
        return None
    return record.row, record.pod_class, record.footprint, record.charge_path, victim.priority, record.pod.budgets
