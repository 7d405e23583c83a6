"""Orders in which victims can be evicted: each removal counts before accounts, limits and gangs are asked about the
next."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.scheduling.preemption.rules.drf_preemption import DrfPreemption
from phalanx.scheduling.preemption.rules.eviction_limits import EvictionDelays, EvictionLimits, no_override
from phalanx.scheduling.preemption.shortfall import shortfall_of
from phalanx.scheduling.preemption.victims import Removals, VictimCandidate
from phalanx.scheduling.session.eviction_log import EvictionLog
from phalanx.scheduling.session.session import Session

# Largest number of steps of a search for an order.
_STEPS = 500


class SearchContext(NamedTuple):
    """Inputs of the checks of removals.

    - `holding`: usage of an account before the first removal.
    - `delays`: collects victims that an eviction rate delays.
    - `enforced`: whether rules and limits hold; gang quorums hold in any case.
    - `drf`: dominant shares of gangs, if the policy compares them.
    - `overrules_owner`: whether a pod's disruption budgets can be broken.
    """

    session: Session
    log: EvictionLog
    holding: Callable[[AccountRecord], Mapping[str, int]]
    delays: EvictionDelays
    enforced: bool = True
    drf: DrfPreemption | None = None
    overrules_owner: Callable[[PodRecord], bool] = no_override


class VictimSequence:
    """Victims that are evicted one after the other.

    Single members count as part of their gang once it is evicted as a whole.
    """

    def __init__(self, context: SearchContext) -> None:
        self._enforced = context.enforced
        self._removals = Removals(context.drf, context.holding)
        self._limits = EvictionLimits(context.session, context.log, context.delays, context.overrules_owner)
        self._singles: dict[GangRecord, list[VictimCandidate]] = {}
        self._whole_gangs: set[GangRecord] = set()

    def try_add(self, victim: VictimCandidate) -> bool:
        """Add a victim if it can be evicted now; return False for one that cannot, or whose whole gang is already
        evicted."""
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

    def frees_last_excess(self, victim: VictimCandidate) -> bool:
        """Return whether some account would exceed its share no more after this removal."""
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
    """Return the order without victims that can no longer be evicted after their predecessors."""
    sequence = VictimSequence(context)
    return [victim for victim in order if sequence.try_add(victim)]


def in_turns(context: SearchContext, candidates: list[VictimCandidate]) -> list[VictimCandidate]:
    """Return candidates in the policy's order, with the excess of reclaimees recomputed after each removal.

    The reclaimee with the smallest resulting shortfall is next; of reclaimees at equal distance, the one with the
    largest excess.
    """
    reclaimees: dict[object, list[VictimCandidate]] = {}
    for victim in candidates:
        if not any(rule.shares for rule in victim.rules.values()):
            return candidates
        reclaimees.setdefault((victim.preempted, victim.distance, *map(id, victim.rules)), []).append(victim)
    if len(reclaimees) < 2:
        return candidates
    removals = Removals(None, context.holding)

    def sort_key(waiting: list[VictimCandidate]) -> tuple[object, ...]:
        first = waiting[-1]
        excess = min(rule.excess_at(removals.holdings_of) for rule in first.rules.values())
        shortfall = shortfall_of([first], removals.holdings_of)
        return (first.preempted, shortfall, first.distance, -excess, *first.order_key[3:])

    # The excess of a reclaimee only shrinks and its shortfall only grows: the head of the heap is next if its place
    # has not changed.
    heap = []
    for number, waiting in enumerate(reclaimees.values()):
        waiting.reverse()
        heap.append((sort_key(waiting), number, waiting))
    heapq.heapify(heap)
    order: list[VictimCandidate] = []
    while heap:
        cached_key, number, waiting = heap[0]
        current_key = sort_key(waiting)
        if current_key != cached_key:
            heapq.heapreplace(heap, (current_key, number, waiting))
            continue
        victim = waiting.pop()
        removals.add(victim)
        order.append(victim)
        if waiting:
            heapq.heapreplace(heap, (sort_key(waiting), number, waiting))
        else:
            heapq.heappop(heap)
    return order


def smallest_first(context: SearchContext, candidates: Iterable[VictimCandidate]) -> list[VictimCandidate]:
    """Return an order that frees much although each account only loses its excess.

    Small victims come first; the largest one comes where an account has only one victim left to lose.
    """
    sequence = VictimSequence(context)
    waiting = sorted(candidates, key=lambda victim: (reclaimable_size(victim), victim.order_key))
    order: list[VictimCandidate] = []
    evicted: set[VictimCandidate] = set()
    for victim in waiting:
        if victim in evicted:
            continue
        last = victim
        if victim.rules and sequence.frees_last_excess(victim):
            same_accounts = [
                candidate
                for candidate in waiting
                if candidate not in evicted and candidate.rules.keys() == victim.rules.keys()
            ]
            last = same_accounts[-1]
        for candidate in (last, victim):
            if candidate not in evicted and sequence.try_add(candidate):
                evicted.add(candidate)
                order.append(candidate)
    return order


def possible_order(context: SearchContext, victims: Sequence[VictimCandidate]) -> list[VictimCandidate] | None:
    """Return an order in which all victims can be evicted, or None if none is found."""
    order = sorted(victims, key=lambda victim: (victim.whole, reclaimable_size(victim), victim.order_key))
    valid_order = admissible(context, order)
    if len(valid_order) == len(order):
        return valid_order
    if not any(rule.must_exceed for victim in order for rule in victim.rules.values()):
        return None
    return _OrderSearch(context, order).find_order()


class _OrderSearch:
    """Bounded search through orders. Sets of victims with no valid continuation are tried once."""

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
        evicted = frozenset(order)
        if evicted in self._failed:
            return None
        for victim in self._victims:
            if victim in evicted or self._left <= 0:
                continue
            self._left -= 1
            longer = [*order, victim]
            if len(admissible(self._context, longer)) == len(longer):
                complete = self._extend(longer)
                if complete is not None:
                    return complete
        self._failed.add(evicted)
        return None


def reclaimable_size(victim: VictimCandidate) -> int:
    """Return the victim's usage of resources of which its accounts exceed their share, summed over resources."""
    return sum(
        victim.amounts[charge_path].get(name, 0)
        for charge_path, rule in victim.rules.items()
        for name in {name for over in rule.must_exceed for name in over.limits}
    )


def without_members_of_whole(victims: Collection[VictimCandidate]) -> list[VictimCandidate]:
    """Return the victims without single members of gangs that are evicted as a whole."""
    whole_gangs = {gang for victim in victims if victim.whole for gang in victim.gangs}
    if not whole_gangs:
        return list(victims)
    return [victim for victim in victims if victim.whole or whole_gangs.isdisjoint(victim.gangs)]
