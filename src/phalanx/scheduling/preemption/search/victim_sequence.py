"""In which order victims may go: each removal counts before accounts, limits and gangs are asked about the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.scheduling.preemption.rules.drf_preemption import DrfPreemption
from phalanx.scheduling.preemption.rules.eviction_limits import EvictionDelays, EvictionLimits, no_override
from phalanx.scheduling.preemption.victims import Removals, VictimCandidate
from phalanx.scheduling.session.eviction_log import EvictionLog
from phalanx.scheduling.session.session import Session

# How many steps a search for an order may take.
_STEPS = 500


class SearchContext(NamedTuple):
    """What removals are judged by. `holding` tells what an account held before the first of them. Who would have to
    wait is noted in `delays`. `enforced` tells whether rules and limits hold: that a gang keeps its minimum or goes
    as a whole holds in any case. `drf` is what gangs' shares say, if the policy asks, `overrules_owner` whether a
    pod's disruption budgets may be broken."""

    session: Session
    log: EvictionLog
    holding: Callable[[AccountRecord], Mapping[str, int]]
    delays: EvictionDelays
    enforced: bool = True
    drf: DrfPreemption | None = None
    overrules_owner: Callable[[PodRecord], bool] = no_override


class VictimSequence:
    """Victims that go one after the other. Single members count as a part of the whole if their gang falls."""

    def __init__(self, context: SearchContext) -> None:
        self._enforced = context.enforced
        self._removals = Removals(context.drf, context.holding)
        self._limits = EvictionLimits(context.session, context.log, context.delays, context.overrules_owner)
        self._singles: dict[GangRecord, list[VictimCandidate]] = {}
        self._whole_gangs: set[GangRecord] = set()

    def try_add(self, victim: VictimCandidate) -> bool:
        """Lets it go, if it may; a single member of a gang that has fallen is gone already."""
        if not self._whole_gangs.isdisjoint(victim.gangs):
            return False
        singles: list[VictimCandidate] = []
        if victim.whole:
            singles = [single for gang in victim.gangs for single in self._singles.get(gang, ())]
        self._count(singles, -1)
        if not self._permits(victim):
            self._count(singles, 1)
            return False
        self._removals.add(victim)
        if victim.whole:
            self._whole_gangs.update(victim.gangs)
        elif victim.dispensable is not None:
            self._singles.setdefault(victim.gangs[0], []).append(victim)
        return True

    def is_last_owed(self, victim: VictimCandidate) -> bool:
        """Whether some account would have to give nothing more once this victim has gone."""
        self._removals.add(victim)
        last = not self._removals.allows(victim)
        self._removals.add(victim, -1)
        return last

    def _permits(self, victim: VictimCandidate) -> bool:
        if not self._removals.gang_can_lose(victim):
            return False
        if self._enforced and not self._removals.allows(victim):
            return False
        if self._enforced:
            return self._limits.try_evict_all(victim.records) is None
        for record in victim.records:
            self._limits.count_eviction(record, 1)
        return True

    def _count(self, victims: Iterable[VictimCandidate], step: int) -> None:
        for victim in victims:
            self._removals.add(victim, step)
            for record in victim.records:
                self._limits.count_eviction(record, step)


def admissible(context: SearchContext, order: Iterable[VictimCandidate]) -> list[VictimCandidate]:
    """The order without those who may not go once those before them have gone."""
    sequence = VictimSequence(context)
    return [victim for victim in order if sequence.try_add(victim)]


def in_turns(context: SearchContext, candidates: list[VictimCandidate]) -> list[VictimCandidate]:
    """The candidates, which are in the policy's order, with reclaimees counted anew after everyone who goes: of
    equal distance the next is one of whoever is furthest above his due then."""
    reclaimees: dict[object, list[VictimCandidate]] = {}
    for victim in candidates:
        if not any(rule.shares for rule in victim.rules.values()):
            return candidates
        reclaimees.setdefault((victim.preempted, victim.distance, *map(id, victim.rules)), []).append(victim)
    if len(reclaimees) < 2:
        return candidates
    removals = Removals(None, context.holding)

    def place(waiting: list[VictimCandidate]) -> tuple[object, ...]:
        first = waiting[-1]
        excess = min(rule.excess_at(removals.holdings_of) for rule in first.rules.values())
        return (first.preempted, first.distance, -excess, *first.order_key[3:])

    # What a reclaimee has too much only shrinks: one whose place is as good as before is the next.
    heap = []
    for number, waiting in enumerate(reclaimees.values()):
        waiting.reverse()
        heap.append((place(waiting), number, waiting))
    heapq.heapify(heap)
    order: list[VictimCandidate] = []
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


def smallest_first(context: SearchContext, candidates: Iterable[VictimCandidate]) -> list[VictimCandidate]:
    """An order that frees much although accounts need not give more than they have too much: small victims first,
    and the largest that there is where one more is the last that an account has to give."""
    sequence = VictimSequence(context)
    waiting = sorted(candidates, key=lambda victim: (reclaimable_size(victim), victim.order_key))
    order: list[VictimCandidate] = []
    gone: set[VictimCandidate] = set()
    for victim in waiting:
        if victim in gone:
            continue
        last = victim
        if victim.rules and sequence.is_last_owed(victim):
            alike = [each for each in waiting if each not in gone and each.rules.keys() == victim.rules.keys()]
            last = alike[-1]
        for each in (last, victim):
            if each not in gone and sequence.try_add(each):
                gone.add(each)
                order.append(each)
    return order


def possible_order(context: SearchContext, victims: Sequence[VictimCandidate]) -> list[VictimCandidate] | None:
    """An order in which all of them may go, None if none is found."""
    order = sorted(victims, key=lambda victim: (victim.whole, reclaimable_size(victim), victim.order_key))
    found = admissible(context, order)
    if len(found) == len(order):
        return found
    if not any(rule.must_exceed for victim in order for rule in victim.rules.values()):
        return None
    return _OrderSearch(context, order).find_order()


class _OrderSearch:
    """Looks through the orders, with a limit; sets of victims that cannot go first are not tried twice."""

    def __init__(self, context: SearchContext, victims: Sequence[VictimCandidate]) -> None:
        self._context = context
        self._victims = victims
        self._left = _STEPS
        self._failed: set[frozenset[VictimCandidate]] = set()

    def find_order(self) -> list[VictimCandidate] | None:
        return self._extend([])

    def _extend(self, order: list[VictimCandidate]) -> list[VictimCandidate] | None:
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
            if len(admissible(self._context, longer)) == len(longer):
                found = self._extend(longer)
                if found is not None:
                    return found
        self._failed.add(gone)
        return None


def reclaimable_size(victim: VictimCandidate) -> int:
    """How much it holds of what its accounts have too much of, in amounts of different resources added up."""
    return sum(
        victim.amounts[charge_path].get(name, 0)
        for charge_path, rule in victim.rules.items()
        for name in {name for over in rule.must_exceed for name in over.limits}
    )


def without_members_of_whole(victims: Collection[VictimCandidate]) -> list[VictimCandidate]:
    """Less the single members of gangs that go as a whole."""
    fallen = {gang for victim in victims if victim.whole for gang in victim.gangs}
    if not fallen:
        return list(victims)
    return [victim for victim in victims if victim.whole or fallen.isdisjoint(victim.gangs)]
