"""In which order victims may go: every removal counts before accounts, caps and gangs are asked about the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.scheduling.preemption.rules.drf_preemption import DrfPreemption
from phalanx.scheduling.preemption.rules.eviction_limits import EvictionDelays, EvictionLimits, no_override
from phalanx.scheduling.preemption.victims import Removals, Victim
from phalanx.scheduling.session.eviction_log import EvictionLog
from phalanx.scheduling.session.session import Session

# How many steps a search for an order may take.
_STEPS = 500


class SearchContext(NamedTuple):
    """What removals are judged by. `holding` tells what an account held before the first of them. Who would have to
    wait is noted in `delays`. `bound` tells whether grounds and caps hold: that a gang keeps its minimum or goes as
    a whole holds in any case. `levelling` is what gangs' shares say, if the policy asks, `overrules` whether a
    pod's disruption budgets may be broken."""

    session: Session
    log: EvictionLog
    holding: Callable[[AccountRecord], Mapping[str, int]]
    delays: EvictionDelays
    bound: bool = True
    levelling: DrfPreemption | None = None
    overrules: Callable[[PodRecord], bool] = no_override


class VictimSequence:
    """Victims that go one after the other. Single members count as a part of the whole if their gang falls."""

    def __init__(self, rules: SearchContext) -> None:
        self._bound = rules.bound
        self._removals = Removals(rules.levelling, rules.holding)
        self._caps = EvictionLimits(rules.session, rules.log, rules.delays, rules.overrules)
        self._singles: dict[GangRecord, list[Victim]] = {}
        self._fallen: set[GangRecord] = set()

    def take(self, victim: Victim) -> bool:
        """Lets it go, if it may; a single member of a gang that has fallen is gone already."""
        if not self._fallen.isdisjoint(victim.gangs):
            return False
        singles: list[Victim] = []
        if victim.whole:
            singles = [single for gang in victim.gangs for single in self._singles.get(gang, ())]
        self._count(singles, -1)
        if not self._permits(victim):
            self._count(singles, 1)
            return False
        self._removals.add(victim)
        if victim.whole:
            self._fallen.update(victim.gangs)
        elif victim.spare is not None:
            self._singles.setdefault(victim.gangs[0], []).append(victim)
        return True

    def exhausts(self, victim: Victim) -> bool:
        """Whether some account would have to give nothing more once this victim has gone."""
        self._removals.add(victim)
        last = not self._removals.permit(victim)
        self._removals.add(victim, -1)
        return last

    def _permits(self, victim: Victim) -> bool:
        if not self._removals.spares(victim):
            return False
        if self._bound and not self._removals.permit(victim):
            return False
        if self._bound:
            return self._caps.take_all(victim.records) is None
        for record in victim.records:
            self._caps.count(record, 1)
        return True

    def _count(self, victims: Iterable[Victim], step: int) -> None:
        for victim in victims:
            self._removals.add(victim, step)
            for record in victim.records:
                self._caps.count(record, step)


def admissible(rules: SearchContext, order: Iterable[Victim]) -> list[Victim]:
    """The order without those who may not go once those before them have gone."""
    succession = VictimSequence(rules)
    return [victim for victim in order if succession.take(victim)]


def in_turns(rules: SearchContext, candidates: list[Victim]) -> list[Victim]:
    """The candidates, which are in the policy's order, with lenders counted anew after everyone who goes: of equal
    distance the next is one of whoever is furthest above his due then."""
    lenders: dict[object, list[Victim]] = {}
    for victim in candidates:
        if not any(ground.dues for ground in victim.grounds.values()):
            return candidates
        lenders.setdefault((victim.preempted, victim.distance, *map(id, victim.grounds)), []).append(victim)
    if len(lenders) < 2:
        return candidates
    removals = Removals(None, rules.holding)

    def place(waiting: list[Victim]) -> tuple[object, ...]:
        first = waiting[-1]
        excess = min(ground.excess_at(removals.holdings) for ground in first.grounds.values())
        return (first.preempted, first.distance, -excess, *first.key[3:])

    # What a lender has too much only shrinks: one whose place is as good as before is the next.
    heap = []
    for number, waiting in enumerate(lenders.values()):
        waiting.reverse()
        heap.append((place(waiting), number, waiting))
    heapq.heapify(heap)
    order: list[Victim] = []
    while heap:
        known, number, waiting = heap[0]
        now = place(waiting)
        if now != known:
            heapq.heapreplace(heap, (now, number, waiting))
            continue
        victim = waiting.pop()
        removals.add(victim)
        order.append(victim)
        if waiting:
            heapq.heapreplace(heap, (place(waiting), number, waiting))
        else:
            heapq.heappop(heap)
    return order


def smallest_first(rules: SearchContext, candidates: Iterable[Victim]) -> list[Victim]:
    """An order that frees much although accounts need not give more than they have too much: small victims first,
    and the largest that there is where one more is the last that an account has to give."""
    succession = VictimSequence(rules)
    waiting = sorted(candidates, key=lambda victim: (reclaimable_size(victim), victim.key))
    order: list[Victim] = []
    gone: set[Victim] = set()
    for victim in waiting:
        if victim in gone:
            continue
        last = victim
        if victim.grounds and succession.exhausts(victim):
            alike = [each for each in waiting if each not in gone and each.grounds.keys() == victim.grounds.keys()]
            last = alike[-1]
        for each in (last, victim):
            if each not in gone and succession.take(each):
                gone.add(each)
                order.append(each)
    return order


def possible_order(rules: SearchContext, victims: Sequence[Victim]) -> list[Victim] | None:
    """An order in which all of them may go, None if none is found."""
    order = sorted(victims, key=lambda victim: (victim.whole, reclaimable_size(victim), victim.key))
    found = admissible(rules, order)
    if len(found) == len(order):
        return found
    if not any(ground.overs for victim in order for ground in victim.grounds.values()):
        return None
    return _OrderSearch(rules, order).find()


class _OrderSearch:
    """Looks through the orders, with a limit; sets of victims that cannot go first are not tried twice."""

    def __init__(self, rules: SearchContext, victims: Sequence[Victim]) -> None:
        self._rules = rules
        self._victims = victims
        self._left = _STEPS
        self._failed: set[frozenset[Victim]] = set()

    def find(self) -> list[Victim] | None:
        return self._extend([])

    def _extend(self, order: list[Victim]) -> list[Victim] | None:
        if len(order) == len(self._victims):
            return order
        gone = frozenset(order)
        if gone in self._failed:
            return None
        for victim in self._victims:
            if victim in gone or self._left <= 0:
                continue
            self._left -= 1
            longer = [*order, victim]
            if len(admissible(self._rules, longer)) == len(longer):
                found = self._extend(longer)
                if found is not None:
                    return found
        self._failed.add(gone)
        return None


def reclaimable_size(victim: Victim) -> int:
    """How much it holds of what its accounts have too much of, in amounts of different resources added up."""
    return sum(
        victim.amounts[payer].get(name, 0)
        for payer, ground in victim.grounds.items()
        for name in {name for over in ground.overs for name in over.limits}
    )


def without_members_of_whole(victims: Collection[Victim]) -> list[Victim]:
    """Less the single members of gangs that go as a whole."""
    fallen = {gang for victim in victims if victim.whole for gang in victim.gangs}
    if not fallen:
        return list(victims)
    return [victim for victim in victims if victim.whole or fallen.isdisjoint(victim.gangs)]
