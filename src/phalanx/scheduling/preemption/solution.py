"""Results of a victim search: an eviction with its cost, or proof that no victims help."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

import msgspec

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.scheduling.preemption.rules.rule import ReclaimRule
from phalanx.scheduling.preemption.shortfall import NO_SHORTFALL, shortfall_of
from phalanx.scheduling.preemption.victims import VictimCandidate
from phalanx.scheduling.queue.demands import Demand
from phalanx.scheduling.refusals.refusal import GangFault

Placement = tuple[PodRecord, int]
"""A pod and the row of its node."""


class EvictionCost(NamedTuple):
    """Cost of an eviction: compared from left to right, less is better.

    - `preempting`: whether a victim is preempted and not only reclaimed.
    - `shortfall`: largest part of its deserved share that a reclaimee would lack (`shortfall_of`).
    - `distance`: levels from the preemptor's queue up to the queue that it shares with the farthest reclaimee.
    - `violations`: evictions beyond a PodDisruptionBudget.
    - `broken_quorums`: number of gangs that lose their quorum.
    - `priority`: highest priority of a victim.
    - `priorities`: sum of priorities above the lowest possible one, so that one more victim never lowers it.
    - `pods`: number of evicted pods.
    - `pod_priorities`: sum of the pods' own priorities, where the PodGroups state other ones.
    - `least_excess`: smallest remaining excess of a reclaimee, negated, so that reclaimees lose pods in turns.
    - `lost_work`: hours since the start or last checkpoint, times the pod's share of the cluster.
    - `ranks`: ranks of members of one gang, negated, so that the highest ranks are evicted first.
    """

    preempting: bool = False
    shortfall: Fraction = NO_SHORTFALL
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
    def decisive(self) -> tuple[bool, Fraction, int, int, int, int, int, int, int, float]:
        """All parts except lost work and ranks, which only break ties."""
        return self[:-2]

    @property
    def without_shortfall(self) -> EvictionCost:
        """Cost by which victims of one queue are compared: priorities come before the queue's shortfall."""
        return self._replace(shortfall=NO_SHORTFALL)


class Eviction(msgspec.Struct, frozen=True):
    """Victims to evict and the resulting placements of the whole preemptor.

    The preemptor also waits for `terminating` pods. `displaced` are nominated pods that lose their room.
    """

    victims: tuple[VictimCandidate, ...]
    placements: tuple[Placement, ...]
    terminating: tuple[PodRecord, ...]
    cost: EvictionCost
    displaced: tuple[PodRecord, ...] = ()

    @property
    def evicts(self) -> bool:
        """Whether a pod is evicted or loses its nomination."""
        return bool(self.victims or self.displaced)


class NoSolution(msgspec.Struct, frozen=True):
    """Proof that no choice of victims helps.

    `facts` is the fit error that remains without all `candidates` (their number). `refused` counts the other pods
    by reason; each reason continues "N pod(s) may not go: ". `retry_at` is the time (seconds since the epoch) when
    a reason ends by itself, else None. With `bindings_help`, a confirmed binding can help: possible victims are
    still being bound, or larger dominant shares allow more victims.
    """

    facts: GangFault | None
    candidates: int
    refused: tuple[tuple[str, int], ...] = ()
    retry_at: float | None = None
    bindings_help: bool = False

    def holds(self, now: float, same_bindings: bool) -> bool:
        """Return whether the proof is still valid; `same_bindings`: no binding was confirmed since the search."""
        return (self.retry_at is None or now < self.retry_at) and (same_bindings or not self.bindings_help)


class EvictionQuestion(msgspec.Struct, frozen=True, eq=True):
    """Inputs of a search for victims besides the cluster. Gangs and pods with equal inputs get the same result."""

    demand: Demand
    priority: int
    pod_priority: int
    preempts: bool
    gangs: tuple[GangRecord, ...]
    total: int

    def __hash__(self) -> int:
        return hash((self.demand, self.priority, self.pod_priority, self.preempts, self.total))


def cost_of(
    victims: Iterable[VictimCandidate],
    violations: int,
    holding: Callable[[AccountRecord], Mapping[str, int]] | None = None,
) -> EvictionCost:
    """Return the cost of evicting all `victims`.

    `holding` returns the usage of an account before the evictions; it is needed for reclaimees only.
    """
    chosen = list(victims)
    if not chosen:
        return EvictionCost()
    return EvictionCost(
        any(victim.preempted for victim in chosen),
        shortfall_of(chosen, holding) if holding is not None else NO_SHORTFALL,
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
    removed: dict[AccountRecord, dict[str, int]] = {}
    for victim in victims:
        for charge_path, rule in victim.rules.items():
            if rule.shares:
                rules[charge_path] = rule
                for account in charge_path.path:
                    add_amounts(removed.setdefault(account, {}), victim.amounts[charge_path], -1)
    if not rules:
        return 0.0

    def left(account: AccountRecord) -> Mapping[str, int]:
        amounts = dict(holding(account))
        add_amounts(amounts, removed.get(account, {}), 1)
        return amounts

    return -min(rule.excess_at(left) for rule in rules.values())


def victim_cost(victim: VictimCandidate) -> tuple[object, ...]:
    """Return the cost of one victim, in the order of `EvictionCost`."""
    return (
        victim.preempted,
        victim.shortfall,
        victim.distance,
        victim.exhausted_budgets,
        victim.broken_quorums,
        victim.priority,
        len(victim.records),
        victim.pod_priorities,
        victim.lost_work,
        victim.rank,
    )
