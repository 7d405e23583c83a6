"""Borrowed and lent amounts of sibling queues (or quotas), derived from their sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from phalanx.scheduling.quota.water_filling import largest_remainders

MOST_PARTNERS = 8


class Borrower(msgspec.Struct, frozen=True):
    """Usage and own amounts of one queue (or quota) among its siblings.

    `own` is the amount that it can claim at any time, `kept` the part of `own` that stays reserved while unused,
    `used` its usage.
    """

    name: str
    own: Mapping[str, int]
    used: Mapping[str, int]
    kept: Mapping[str, int] = {}


class Loan(msgspec.Struct):
    """Loan of one queue (or quota): `borrowed` is its usage above its own amount, `lent` the part of its own amount
    that siblings use.

    `partners` are the lenders or borrowers, largest first, at most MOST_PARTNERS; `further` counts the remaining
    ones. Usage above the own amount that no sibling lends comes from unclaimed capacity.
    """

    borrowed: dict[str, int] = {}
    lent: dict[str, int] = {}
    partners: tuple[str, ...] = ()
    further: int = 0


def borrowed_and_lent(parties: Sequence[Borrower], total: Mapping[str, int]) -> dict[str, Loan]:
    """Return the loan of each sibling queue by name. The siblings share `total`; resources without an owner are
    skipped.

    Idle capacity serves first: lent is the unused own amount minus the idle capacity. It is split between siblings
    in proportion to their unused amounts.
    """
    loans = {party.name: Loan({}, {}) for party in parties}
    lenders: dict[str, Mapping[str, int]] = {}
    borrowers: dict[str, Mapping[str, int]] = {}
    for resource in sorted({name for party in parties for name in party.own}):
        over = {party.name: _over(party, resource) for party in parties}
        unused = {party.name: _unused(party, resource) for party in parties}
        idle = max(0, total.get(resource, 0) - sum(party.used.get(resource, 0) for party in parties))
        # A kept amount stays free for its owner and serves no other sibling.
        idle = max(0, idle - sum(_kept_idle(party, resource) for party in parties))
        lent = _split(min(sum(over.values()), max(0, sum(unused.values()) - idle)), unused)
        lenders[resource] = {name: amount for name, amount in lent.items() if amount}
        borrowers[resource] = {name: amount for name, amount in over.items() if amount}
        for name, amount in borrowers[resource].items():
            loans[name].borrowed[resource] = amount
        for name, amount in lenders[resource].items():
            loans[name].lent[resource] = amount
    known: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for loan in loans.values():
        # Siblings that borrow and lend the same resources have the same partners.
        key = (tuple(loan.borrowed), tuple(loan.lent))
        if key not in known:
            sides = [lenders[name] for name in loan.borrowed] + [borrowers[name] for name in loan.lent]
            known[key] = _largest_first(sides)
        loan.partners = tuple(known[key][:MOST_PARTNERS])
        loan.further = len(known[key]) - len(loan.partners)
    return loans


def _largest_first(sides: Iterable[Mapping[str, int]]) -> list[str]:
    """Return the names of lenders or borrowers by descending amount, those of the first mapping first."""
    ordered = [name for side in sides for name in sorted(side, key=lambda name: (-side[name], name))]
    return list(dict.fromkeys(ordered))


def _over(party: Borrower, resource: str) -> int:
    return max(0, party.used.get(resource, 0) - party.own.get(resource, 0))


def _unused(party: Borrower, resource: str) -> int:
    """Return the unused amount of a resource that siblings can borrow from a queue."""
    reserved = max(party.used.get(resource, 0), party.kept.get(resource, 0))
    return max(0, party.own.get(resource, 0) - reserved)


def _kept_idle(party: Borrower, resource: str) -> int:
    return max(0, party.kept.get(resource, 0) - party.used.get(resource, 0))


def _split(amount: int, unused: Mapping[str, int]) -> dict[str, int]:
    whole = sum(unused.values())
    if not amount or not whole:
        return dict.fromkeys(unused, 0)
    parts = {name: amount * own // whole for name, own in unused.items()}
    remainders = [(amount * own % whole, name) for name, own in unused.items()]
    for name in largest_remainders(amount - sum(parts.values()), remainders):
        parts[name] += 1
    return parts
