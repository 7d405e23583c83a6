"""What a search for room finds: an eviction and what it costs, or that none would help."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.cluster.pods.records import PodRecord
from phalanx.scheduling.diagnosis.shortage import Gap, Shortage
from phalanx.scheduling.preemption.rules.rule import ReclaimRule
from phalanx.scheduling.preemption.victims import Victim
from phalanx.scheduling.quota.limits import OverQuota

Placement = tuple[PodRecord, int]
"""A pod and the row it would go to."""


class EvictionCost(NamedTuple):
    """Compared from left to right; less is better.

    `preempting`: whether anything is taken that was not merely lent. `distance`: how far up the tree of queues the
    farthest lender is. `violations`: pods taken against a PodDisruptionBudget. `gangs`: how many lose their quorum.
    `priority`: of the most important victim, then `priorities`: the sum over all (above the lowest that there is,
    so that a further victim never makes it smaller). `pods`: how many go. `own`: the sum of the pods' own
    priorities, where their groups state others. `drained`: the smallest excess that a lender is left with, negated,
    so that lenders give in turns. `work`: what is lost, in hours since
    the start or the last checkpoint, times the part of the cluster that the pod holds.
    """

    preempting: bool = False
    distance: int = 0
    violations: int = 0
    gangs: int = 0
    priority: int = -(2**31)
    priorities: int = 0
    pods: int = 0
    own: int = 0
    drained: float = 0.0
    work: float = 0.0

    @property
    def decisive(self) -> tuple[bool, int, int, int, int, int, int, int, float]:
        """All but the lost work, which decides between equals only."""
        return self[:-1]


class Eviction(msgspec.Struct, frozen=True):
    """These go, and then everybody fits: `placements` of the whole beneficiary. `leavers` are on their way out
    already and must have left too. `losers` are pods for which room was held that the beneficiary takes now."""

    victims: tuple[Victim, ...]
    placements: tuple[Placement, ...]
    leavers: tuple[PodRecord, ...]
    cost: EvictionCost
    losers: tuple[PodRecord, ...] = ()

    @property
    def evicts(self) -> bool:
        """Whether anybody goes, or gives up the room that is held for him."""
        return bool(self.victims or self.losers)


class NoSolution(msgspec.Struct, frozen=True):
    """No choice of victims helps. `facts` is what would be missing without everybody who may go, `candidates` how
    many those are; `refused` counts the others by why they may not go, a phrase that goes on from "N pod(s) may not
    go: ". `again` is when (seconds since the epoch) that changes by itself, None if it does not. It is `unripe`
    while pods that may help once they have arrived on their nodes are on their way there."""

    facts: Shortage | Gap | OverQuota | None
    candidates: int
    refused: tuple[tuple[str, int], ...] = ()
    again: float | None = None
    unripe: bool = False


def cost_of(
    victims: Iterable[Victim], violations: int, holding: Callable[[AccountRecord], Mapping[str, int]] | None = None
) -> EvictionCost:
    """What it costs if all of these go. `holding` tells what accounts hold before, where there are lenders."""
    chosen = list(victims)
    if not chosen:
        return EvictionCost()
    return EvictionCost(
        any(victim.preempted for victim in chosen),
        max(victim.distance for victim in chosen),
        violations,
        sum(victim.breaks for victim in chosen),
        max(victim.priority for victim in chosen),
        sum((victim.priority + 2**31) * len(victim.records) for victim in chosen),
        sum(len(victim.records) for victim in chosen),
        sum(victim.own for victim in chosen),
        _drained(chosen, holding) if holding is not None else 0.0,
        sum(victim.work for victim in chosen),
    )


def _drained(victims: Iterable[Victim], holding: Callable[[AccountRecord], Mapping[str, int]]) -> float:
    grounds: dict[ChargePath, ReclaimRule] = {}
    gone: dict[AccountRecord, dict[str, int]] = {}
    for victim in victims:
        for payer, ground in victim.grounds.items():
            if ground.dues:
                grounds[payer] = ground
                for account in payer.path:
                    add_amounts(gone.setdefault(account, {}), victim.amounts[payer], -1)
    if not grounds:
        return 0.0

    def left(account: AccountRecord) -> Mapping[str, int]:
        amounts = dict(holding(account))
        add_amounts(amounts, gone.get(account, {}), 1)
        return amounts

    return -min(ground.excess_at(left) for ground in grounds.values())


def victim_cost(victim: Victim) -> tuple[object, ...]:
    """How much is lost with one victim, by the order of costs."""
    return (
        victim.preempted,
        victim.distance,
        victim.exposed,
        victim.breaks,
        victim.priority,
        len(victim.records),
        victim.own,
        victim.work,
    )
