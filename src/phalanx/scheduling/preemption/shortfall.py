"""Shortfall of accounts: how far victims would take a queue or quota below the share that it deserves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from phalanx.cluster.accounts import AccountRecord, add_amounts
from phalanx.model.decisions import EvictionReason
from phalanx.scheduling.preemption.victims import VictimCandidate

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
