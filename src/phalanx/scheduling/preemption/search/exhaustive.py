"""The best choice among few candidates: a complete search with a limit on its work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from phalanx.scheduling.preemption.cost import Cost, cost_of, dear
from phalanx.scheduling.preemption.rules.eviction_limits import Caps
from phalanx.scheduling.preemption.search.removed import Taken
from phalanx.scheduling.preemption.search.victim_sequence import Rules, arranged
from phalanx.scheduling.preemption.search.work_limit import Effort
from phalanx.scheduling.preemption.victims import Victim

if TYPE_CHECKING:
    from phalanx.scheduling.preemption.solution import Eviction

Outcome = Callable[[Taken, Sequence[Victim]], "Eviction | None"]


class CompleteSearch:
    """Decides on one candidate after the other, the most valuable first: it stays, if the beneficiary would fit
    were everybody gone on whom is not decided yet, or it goes. What costs as much as the best so far is left.

    `fits` tells whether the beneficiary can be placed now. Once the `effort` is spent the best so far is it.
    """

    def __init__(
        self, rules: Rules, taken: Taken, fits: Callable[[], bool], effort: Effort, outcome: Outcome
    ) -> None:
        self._rules = rules
        self._taken = taken
        self._fits = fits
        self._effort = effort
        self._outcome = outcome
        self._best: Eviction | None = None
        self._victims: list[Victim] = []
        self._twins: list[object] = []

    def run(self, candidates: Sequence[Victim], best: Eviction | None) -> Eviction | None:
        """The best choice, if it is better than what is known (`best`)."""
        self._best = best
        # A whole gang comes before its single members.
        self._victims = sorted(candidates, key=lambda victim: (dear(victim), victim.key), reverse=True)
        self._twins = [_twin(victim) for victim in self._victims]
        # Candidates are judged by what accounts hold before anybody is off.
        accounts = {account for victim in candidates for payer in victim.amounts for account in payer.path}
        holdings = {account: dict(self._rules.holding(account)) for account in accounts}
        self._rules = self._rules._replace(holding=holdings.__getitem__)
        self._taken.go(self._victims)
        if self._fits():
            self._decide(0, [])
        self._taken.stay(self._victims)
        return self._best

    def _decide(self, place: int, chosen: list[Victim]) -> None:
        if place == len(self._victims):
            found = self._outcome(self._taken, chosen)
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
            self._taken.stay([victim])
            if absorbed or (self._effort.lasts and self._fits()):
                self._decide(place + 1, chosen)
            self._taken.go([victim])
        more = [*chosen, victim]
        if absorbed or not self._effort.lasts:
            return
        if self._best is not None and self._cost(more).decisive >= self._best.cost.decisive:
            return
        self._effort.look(len(more))
        if arranged(self._rules, more) is not None:
            self._decide(place + 1, more)

    def _cost(self, chosen: Sequence[Victim]) -> Cost:
        caps = Caps(self._rules.session, self._rules.log)
        for victim in chosen:
            for record in victim.records:
                if record.pod.budgets:
                    caps.count(record, 1)
        return cost_of(chosen, caps.violations, self._rules.holding)


def _twin(victim: Victim) -> object:
    """Equal for pods on their own that nothing but what they would lose tells apart; None for others."""
    record = victim.records[0]
    if victim.gangs or record.pod_class.dynamic:
        return None
    return record.row, record.pod_class, record.footprint, record.charge_path, victim.priority, record.pod.budgets
