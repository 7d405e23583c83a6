"""Who holds more than is his, and whose part that is: read off the sums, nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from phalanx.scheduling.quota.water_filling import largest_remainders

MOST_PARTNERS = 8


class Borrower(msgspec.Struct, frozen=True):
    """One of several siblings: what it may claim whenever it wants (`own`), what of that it keeps even while it
    does not use it (`kept`), and what it uses.
    """

    name: str
    own: Mapping[str, int]
    used: Mapping[str, int]
    kept: Mapping[str, int] = {}


class Loan(msgspec.Struct):
    """`borrowed` is what a party holds above its own, `lent` what of its own is in others' hands.

    `partners` are those it has borrowed from or lent to, who have most first; beyond `MOST_PARTNERS` only their
    number is told, in `further`. What is held above one's own and lent by nobody is room that nobody may claim.
    """

    borrowed: dict[str, int] = {}
    lent: dict[str, int] = {}
    partners: tuple[str, ...] = ()
    further: int = 0


def borrowed_and_lent(parties: Sequence[Borrower], total: Mapping[str, int]) -> dict[str, Loan]:
    """name -> loan, for parties that share `total`; only resources that somebody owns a part of are looked at.

    What is idle serves first: lent is what the parties leave unused of their own, less what is still free. It is
    split over them in proportion to what they leave unused.
    """
    found = {party.name: Loan({}, {}) for party in parties}
    lenders: dict[str, Mapping[str, int]] = {}
    borrowers: dict[str, Mapping[str, int]] = {}
    for resource in sorted({name for party in parties for name in party.own}):
        over = {party.name: _over(party, resource) for party in parties}
        unused = {party.name: _unused(party, resource) for party in parties}
        idle = max(0, total.get(resource, 0) - sum(party.used.get(resource, 0) for party in parties))
        # What is kept stays free for its owner: nobody else's room.
        idle = max(0, idle - sum(_kept_idle(party, resource) for party in parties))
        lent = _split(min(sum(over.values()), max(0, sum(unused.values()) - idle)), unused)
        lenders[resource] = {name: amount for name, amount in lent.items() if amount}
        borrowers[resource] = {name: amount for name, amount in over.items() if amount}
        for name, amount in borrowers[resource].items():
            found[name].borrowed[resource] = amount
        for name, amount in lenders[resource].items():
            found[name].lent[resource] = amount
    known: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for loan in found.values():
        # Who borrows and lends the same resources has the same partners.
        key = (tuple(loan.borrowed), tuple(loan.lent))
        if key not in known:
            sides = [lenders[name] for name in loan.borrowed] + [borrowers[name] for name in loan.lent]
            known[key] = _largest_first(sides)
        loan.partners = tuple(known[key][:MOST_PARTNERS])
        loan.further = len(known[key]) - len(loan.partners)
    return found


def _largest_first(sides: Iterable[Mapping[str, int]]) -> list[str]:
    """Everyone on any of the sides; of the first side first."""
    ordered = [name for side in sides for name in sorted(side, key=lambda name: (-side[name], name))]
    return list(dict.fromkeys(ordered))


def _over(party: Borrower, resource: str) -> int:
    return max(0, party.used.get(resource, 0) - party.own.get(resource, 0))


def _unused(party: Borrower, resource: str) -> int:
    """What it leaves to others."""
    least = max(party.used.get(resource, 0), party.kept.get(resource, 0))
    return max(0, party.own.get(resource, 0) - least)


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
