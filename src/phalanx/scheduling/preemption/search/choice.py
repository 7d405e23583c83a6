"""Which of some candidates go: as few as can be, in the order in which they are offered, or for less."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from phalanx.scheduling.preemption.cost import dear
from phalanx.scheduling.preemption.preemptor import Beneficiary
from phalanx.scheduling.preemption.search.affinity_dependents import Interplay
from phalanx.scheduling.preemption.search.exhaustive import CompleteSearch, Outcome
from phalanx.scheduling.preemption.search.removed import Taken
from phalanx.scheduling.preemption.search.victim_sequence import Rules, admissible, without_absorbed
from phalanx.scheduling.preemption.search.work_limit import Effort
from phalanx.scheduling.preemption.victims import Victim

if TYPE_CHECKING:
    from phalanx.cluster.transaction import Transaction
    from phalanx.scheduling.preemption.solution import Eviction

# Up to so many victims each is tried without, everything placed anew; beyond, only what is not touched comes back.
_RETRIES = 64
# So few candidates are looked through completely.
_FEW = 16
# A better choice is looked for among so many candidates at most.
_CHOICE = 200


class Choice:
    """Tries choices within a transaction. `fits` tells whether the beneficiary can be placed now, `outcome` makes
    an answer of those who are off."""

    def __init__(
        self,
        rules: Rules,
        beneficiary: Beneficiary,
        transaction: Transaction,
        effort: Effort,
        fits: Callable[[], bool],
        outcome: Outcome,
    ) -> None:
        self._rules = rules
        self._for = beneficiary
        self._transaction = transaction
        self._effort = effort
        self._fits = fits
        self._outcome = outcome
        self._taken = Taken(rules, transaction, Interplay(rules.session, beneficiary.classes))

    def of(self, orders: Iterable[list[Victim]], candidates: Sequence[Victim]) -> Eviction | None:
        """The best that is found when candidates go in one of the orders, or in whatever way if they are few."""
        best: Eviction | None = None
        self._effort.find()
        for order in orders:
            found = self.shrink(order)
            if found is not None and (best is None or found.cost < best.cost):
                best = found
            if best is not None and (len(candidates) > _CHOICE or not self._effort.cheap):
                break
        self._effort.improve()
        if len(candidates) <= _FEW:
            return self._complete(candidates, best)
        return self._improve(best, candidates) if best is not None else None

    def nobody(self) -> Eviction | None:
        """The answer if nobody has to go."""
        return self._outcome(self._taken, [])

    def shrink(self, order: Sequence[Victim]) -> Eviction | None:
        """The smallest part of the order from its beginning that suffices, less everybody who is not needed."""
        taken, sequence = self._taken, admissible(self._rules, order)
        self._effort.look(len(order))
        # First a few, then ever more: mostly few suffice.
        low, high = 0, min(len(sequence), self._for.total)
        self._go(sequence[:high])
        gone = high
        while not self._fits():
            if high == len(sequence):
                self._stay(sequence)
                return None
            low, high = high + 1, min(len(sequence), 4 * high)
            self._go(sequence[gone:high])
            gone = high
        while low < high and self._effort.lasts:
            middle = (low + high) // 2
            if middle < gone:
                self._stay(sequence[middle:gone])
            else:
                self._go(sequence[gone:middle])
            gone = middle
            if self._fits():
                high = middle
            else:
                low = middle + 1
        if gone < high:
            self._go(sequence[gone:high])
        elif gone > high:
            self._stay(sequence[high:gone])
        chosen = self._spare(list(sequence[:high]))
        found = self._outcome(taken, chosen)
        self._stay(chosen)
        return found

    def _go(self, victims: Sequence[Victim]) -> None:
        self._effort.move(victims)
        self._taken.go(victims)

    def _stay(self, victims: Sequence[Victim]) -> None:
        self._effort.move(victims)
        self._taken.stay(victims)

    def _spare(self, chosen: list[Victim]) -> list[Victim]:
        """Gives back who is not needed, the most valuable first."""
        if len(chosen) > _RETRIES:
            chosen = self._spare_untouched(chosen)
        if len(chosen) <= _RETRIES:
            for victim in sorted(chosen, key=lambda victim: victim.key, reverse=True):
                if not self._effort.lasts:
                    break
                if victim not in without_absorbed(chosen):
                    continue
                self._stay([victim])
                if self._fits():
                    chosen.remove(victim)
                else:
                    self._go([victim])
        kept = without_absorbed(chosen)
        self._stay([victim for victim in chosen if victim not in kept])
        return kept

    def _spare_untouched(self, chosen: list[Victim]) -> list[Victim]:
        """Gives back those whose room nobody takes where the beneficiary is now."""
        session, taken = self._rules.session, self._taken
        if self._for.place(session, self._transaction) is not None:
            return chosen
        kept = dict.fromkeys(chosen)
        for victim in reversed(chosen):
            if taken.has_room(victim):
                taken.stay([victim])
                if self._accounts_hold(victim):
                    del kept[victim]
                else:
                    taken.go([victim])
        self._transaction.unplace()
        if self._fits():
            return list(kept)
        taken.go([victim for victim in chosen if victim not in kept])  # cannot be: it was placed just so
        return chosen

    def _accounts_hold(self, victim: Victim) -> bool:
        """Whether no account of the beneficiary in which the victim stands holds too much."""
        overdrawn = self._rules.session.quota_check.overdrawn(self._for.payers)
        return not any(account in payer.path for account in overdrawn for payer in victim.amounts)

    def _improve(self, best: Eviction, candidates: Sequence[Victim]) -> Eviction:
        """Tries to do without each victim, the most valuable first, at the cost of cheaper ones."""
        rows = {row for _, row in best.placements}
        if len(best.victims) <= _FEW // 2:
            near = [v for v in candidates if v not in best.victims and not rows.isdisjoint(v.rows)]
            found = self._complete([*best.victims, *near[: _FEW - len(best.victims)]], best)
            best = found if found is not None else best
        if self._for.total == 1 and all(not rows.isdisjoint(victim.rows) for victim in best.victims):
            return best  # of one pod's nodes each has been weighed
        tried: set[Victim] = set()
        while self._effort.lasts:
            worst = next((v for v in sorted(best.victims, key=dear, reverse=True) if v not in tried), None)
            if worst is None:
                return best
            tried.add(worst)
            others = [victim for victim in best.victims if victim is not worst]
            cheaper = [v for v in candidates[:_CHOICE] if v is not worst and dear(v) <= dear(worst)]
            found = self.shrink([*others, *(victim for victim in cheaper if victim not in others)])
            if found is not None and found.cost.decisive < best.cost.decisive:
                best = found
        return best

    def _complete(self, candidates: Sequence[Victim], best: Eviction | None) -> Eviction | None:
        search = CompleteSearch(self._rules, self._taken, self._fits, self._effort, self._outcome)
        return search.run(candidates, best)
