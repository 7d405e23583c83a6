"""Shortfall of accounts: how far victims would take a queue or quota below the share that it deserves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.model.decisions import EvictionReason
from phalanx.scheduling.preemption.victims import Removals, VictimCandidate

NO_SHORTFALL = Fraction(0)


def shortfall_of(
    victims: Iterable[VictimCandidate], holding: Callable[[AccountRecord], Mapping[str, int]]
) -> Fraction:
    """Return the largest part of its deserved share that an account would lack without the victims.

    The result is the maximum of (deserved - left) / deserved over the reclaimed accounts, their levels, and the
    requested resources that the victims use there; 0 if every account keeps its deserved share. `holding` returns
    the usage of an account before the evictions.
    """
    shares: set[tuple[AccountRecord, str, int]] = set()
    removed: dict[AccountRecord, dict[str, int]] = {}
    for victim in victims:
        for charge_path, rule in victim.rules.items():
            if rule.reason is not EvictionReason.RECLAIMED:
                continue
            for account in charge_path.path:
                add_amounts(removed.setdefault(account, {}), victim.amounts[charge_path], 1)
            for share in rule.deserved:
                for name, amount in share.limits.items():
                    shares.add((share.account, name, amount))
    largest = NO_SHORTFALL
    for account, name, deserved in shares:
        lost = removed[account].get(name, 0)
        lacking = deserved - holding(account).get(name, 0) + lost if lost > 0 else 0
        if lacking > 0:
            largest = max(largest, Fraction(lacking, deserved))
    return largest


LossKey = tuple[int, ...]
"""Sorted numbers of the losses of some victims: equal keys mean an equal shortfall."""


class Shortfalls:
    """Shortfalls of choices of victims beside the victims that were chosen before, computed once per `LossKey`.

    They increase with each victim that is added. `holding` returns the usage of an account before all evictions.
    """

    def __init__(self, holding: Callable[[AccountRecord], Mapping[str, int]]) -> None:
        self._before = Removals(None, holding)
        self._numbers: dict[tuple[tuple[ChargePath, tuple[tuple[str, int], ...]], ...], int] = {}
        self._number_of: dict[VictimCandidate, int] = {}
        self._known: dict[LossKey, Fraction] = {}

    def key_of(self, victims: Iterable[VictimCandidate]) -> LossKey:
        """Return the key of the amounts that the victims take from each account."""
        return tuple(sorted(map(self._number, victims)))

    def of(self, victims: Iterable[VictimCandidate], key: LossKey) -> Fraction:
        """Return the shortfall of the victims, which have this key, beside those that were added."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = shortfall_of(victims, self._before.holdings_of)
        return known

    def add(self, victim: VictimCandidate) -> None:
        """Count a victim as chosen."""
        self._before.add(victim)
        self._known.clear()

    def _number(self, victim: VictimCandidate) -> int:
        number = self._number_of.get(victim)
        if number is None:
            losses = tuple(
                (charge_path, tuple(victim.amounts[charge_path].items()))
                for charge_path, rule in victim.rules.items()
                if rule.reason is EvictionReason.RECLAIMED
            )
            number = self._number_of[victim] = self._numbers.setdefault(losses, len(self._numbers))
        return number
