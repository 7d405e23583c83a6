"""What a search for room finds: an eviction and what it costs, or that none would help."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.cluster.pods.records import PodRecord
from phalanx.scheduling.preemption.rules.rule import ReclaimRule
from phalanx.scheduling.preemption.victims import VictimCandidate
from phalanx.scheduling.refusals.refusal import GangFault

Placement = tuple[PodRecord, int]
"""A pod and the row it would go to."""


class EvictionCost(NamedTuple):
    """Compared from left to right; less is better.

    `preempting`: whether anything is taken that was not merely lent. `distance`: how far up the tree of queues the
    farthest reclaimee is. `violations`: pods taken against a PodDisruptionBudget. `broken_quorums`: how many lose
    their quorum. `priority`: of the most important victim, then `priorities`: the sum over all (above the lowest
    that there is, so that a further victim never makes it smaller). `pods`: how many go. `pod_priorities`: the sum
    of the pods' own priorities, where their groups state others. `least_excess`: the smallest excess that a
    reclaimee is left with, negated, so that reclaimees give in turns. `lost_work`: what is lost, in hours since the
    start or the last checkpoint, times the part of the cluster that the pod holds. `ranks`: those of members of one
    gang, negated, so that the highest go.
    """

    preempting: bool = False
    distance: int = 0
    violations: int = 0
    broken_quorums: int = 0
    priority: int = -(2**31)
    priorities: int = 0
    pods: int = 0
    pod_priorities: int = 0
    least_excess: float = 0.0
    lost_work: float = 0.0
    ranks: int = 0

    @property
    def decisive(self) -> tuple[bool, int, int, int, int, int, int, int, float]:
        """All but the lost work and the ranks, which decide between equals only."""
        return self[:-2]


class Eviction(msgspec.Struct, frozen=True):
    """These go, and then everybody fits: `placements` of the whole preemptor. `terminating` are on their way out
    already and must have left too. `displaced` are pods for which room was held that the preemptor takes now."""

    victims: tuple[VictimCandidate, ...]
    placements: tuple[Placement, ...]
    terminating: tuple[PodRecord, ...]
    cost: EvictionCost
    displaced: tuple[PodRecord, ...] = ()

    @property
    def evicts(self) -> bool:
        """Whether anybody goes, or gives up the room that is held for him."""
        return bool(self.victims or self.displaced)


class NoSolution(msgspec.Struct, frozen=True):
    """No choice of victims helps. `facts` is what would be missing without everybody who may go, `candidates` how
    many those are; `refused` counts the others by why they may not go, a phrase that goes on from "N pod(s) may not
    go: ". `retry_at` is when (seconds since the epoch) that changes by itself, None if it does not. While
    `pods_arriving`, some that may help are on their way to their nodes."""

    facts: GangFault | None
    candidates: int
    refused: tuple[tuple[str, int], ...] = ()
    retry_at: float | None = None
    pods_arriving: bool = False


def cost_of(
    victims: Iterable[VictimCandidate],
    violations: int,
    holding: Callable[[AccountRecord], Mapping[str, int]] | None = None,
) -> EvictionCost:
    """What it costs if all of these go. `holding` tells what accounts hold before, where there are reclaimees."""
    chosen = list(victims)
    if not chosen:
        return EvictionCost()
    return EvictionCost(
        any(victim.preempted for victim in chosen),
        max(victim.distance for victim in chosen),
        violations,
        sum(victim.broken_quorums for victim in chosen),
        max(victim.priority for victim in chosen),
        sum((victim.priority + 2**31) * len(victim.records) for victim in chosen),
        sum(len(victim.records) for victim in chosen),
        sum(victim.pod_priorities for victim in chosen),
        _drained(chosen, holding) if holding is not None else 0.0,
        sum(victim.lost_work for victim in chosen),
        sum(victim.rank for victim in chosen),
    )


def _drained(victims: Iterable[VictimCandidate], holding: Callable[[AccountRecord], Mapping[str, int]]) -> float:
    rules: dict[ChargePath, ReclaimRule] = {}
    gone: dict[AccountRecord, dict[str, int]] = {}
    for victim in victims:
        for charge_path, rule in victim.rules.items():
            if rule.shares:
                rules[charge_path] = rule
                for account in charge_path.path:
                    add_amounts(gone.setdefault(account, {}), victim.amounts[charge_path], -1)
    if not rules:
        return 0.0

    def left(account: AccountRecord) -> Mapping[str, int]:
        amounts = dict(holding(account))
        add_amounts(amounts, gone.get(account, {}), 1)
        return amounts

    return -min(rule.excess_at(left) for rule in rules.values())


def victim_cost(victim: VictimCandidate) -> tuple[object, ...]:
    """How much is lost with one victim, by the order of costs."""
    return (
        victim.preempted,
        victim.distance,
        victim.exhausted_budgets,
        victim.broken_quorums,
        victim.priority,
        len(victim.records),
        victim.pod_priorities,
        victim.lost_work,
        victim.rank,
    )
