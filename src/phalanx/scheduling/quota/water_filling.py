"""Weighted max-min fairness ("water-filling") with floors and caps, in whole units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_START, _STOP = 0, 1


class ShareClaimant(NamedTuple):
    """Claimant (such as a queue) of one resource: it gets at least `floor` (its guarantee), at most the larger of
    `floor` and `cap` (its request or limit), in between a part by `weight`. Amounts and weights are not negative.
    """

    name: str
    weight: int
    cap: int
    floor: int = 0


class ShareRequest(NamedTuple):
    """Claimant of several resources.

    An absent request or guarantee is 0, an absent capability is unlimited; `weights` override `weight` per
    resource.
    """

    name: str
    weight: int
    request: Mapping[str, int]
    guarantee: Mapping[str, int] = {}
    capability: Mapping[str, int] = {}
    weights: Mapping[str, int] = {}


def deserved(total: Mapping[str, int], claims: Sequence[ShareRequest]) -> dict[str, dict[str, int]]:
    """Return the deserved amounts of each claimant by name and resource, for every resource of `total`.

    As in Volcano's proportion plugin (proportion.go), a claimant gets at most its request and its real capability
    (see `real_capability`), and at least its guarantee.
    """
    amounts: dict[str, dict[str, int]] = {claim.name: {} for claim in claims}
    bounded = {name for claim in claims for name in (*claim.guarantee, *claim.capability)}
    for resource, amount in total.items():
        requests = [claim.request.get(resource, 0) for claim in claims]
        if resource not in bounded and sum(requests) <= amount:
            for claim, request in zip(claims, requests, strict=True):
                amounts[claim.name][resource] = request
            continue
        floors = [claim.guarantee.get(resource, 0) for claim in claims]
        limit = max(0, amount - sum(floors))
        # The cap of a claimant is its real capability, but at least its guarantee.
        caps = [
            max(floor, min(request, limit + floor, claim.capability.get(resource, request)))
            for claim, request, floor in zip(claims, requests, floors, strict=True)
        ]
        if sum(caps) <= amount:
            for claim, cap in zip(claims, caps, strict=True):
                amounts[claim.name][resource] = cap
            continue
        claimants = [
            ShareClaimant(claim.name, claim.weights.get(resource, claim.weight), cap, floor)
            for claim, cap, floor in zip(claims, caps, floors, strict=True)
        ]
        for name, share in fill(amount, claimants).items():
            amounts[name][resource] = share
    return amounts


def real_capability(total: int, guaranteed: int, guarantee: int, capability: int | None) -> int:
    """Return the largest amount for one claimant that leaves the guarantees of all others.

    `guaranteed` is the sum of all guarantees, its own included.
    """
    limit = max(0, total - guaranteed) + guarantee
    return limit if capability is None else min(capability, limit)


def fill(total: int, claimants: Sequence[ShareClaimant]) -> dict[str, int]:
    """Return the amount of one resource for each claimant by name. The sum is the total, less where all caps are
    reached, more where the floors alone exceed it.

    The result is the limit of Volcano's iteration (proportion.go). The first round gives each claimant its weighted
    part of the total, cut to its cap and raised to its floor. The rest goes by weight to claimants below their
    caps, on top of their amounts. Where floors in the first round would exceed the total, as they do in Volcano,
    all other claimants get one lower level instead. Indivisible units go one each to the largest remainders, ties
    to the first names. O(n log n).
    """
    caps = {claimant.name: max(claimant.cap, claimant.floor) for claimant in claimants}
    if sum(caps.values()) <= total:
        return caps
    weights = sum(claimant.weight for claimant in claimants)
    floors = sum(claimant.floor for claimant in claimants)
    if floors >= total or not weights:
        return {claimant.name: claimant.floor for claimant in claimants}
    # In units of 1 / weights all amounts of the first round are integers.
    first = {
        claimant.name: max(claimant.floor * weights, min(caps[claimant.name] * weights, claimant.weight * total))
        for claimant in claimants
    }
    pool = total * weights - sum(first.values())
    if pool < 0:
        return _level(total, claimants, caps)
    return _rise(total, claimants, caps, first, weights, pool)


def largest_remainders(units: int, remainders: Iterable[tuple[int, str]]) -> list[str]:
    """Return the names that get one of the remaining units: those of the largest remainders, ties by name."""
    if units <= 0:
        return []
    return [name for _, name in sorted((-remainder, name) for remainder, name in remainders)[:units]]


def _rise(
    total: int,
    claimants: Sequence[ShareClaimant],
    caps: dict[str, int],
    first: dict[str, int],
    unit: int,
    pool: int,
) -> dict[str, int]:
    """Share `pool` by weight among claimants if their part of `first` (both in 1 / unit) is below their cap."""
    amounts = {
        name: caps[name] if part == caps[name] * unit else part // unit for name, part in first.items()
    }  # a claimant without weight stays at its floor, an integer
    rooms = [(claimant, caps[claimant.name] * unit - first[claimant.name]) for claimant in claimants]
    rising = [(claimant, room) for claimant, room in rooms if room and claimant.weight]
    precision = _precision(rising_claimant.weight for rising_claimant, _ in rising)
    rising.sort(key=lambda entry: (entry[1] << precision) // entry[0].weight)
    weight = sum(claimant.weight for claimant, _ in rising)
    capped_count = 0
    for claimant, room in rising:
        if room * weight > claimant.weight * pool:
            break
        amounts[claimant.name] = caps[claimant.name]
        pool -= room
        weight -= claimant.weight
        capped_count += 1
    lines = [(first[c.name] * weight + c.weight * pool, c.name) for c, _ in rising[capped_count:]]
    _round(total, amounts, lines, unit * weight)
    return amounts


def _level(total: int, claimants: Sequence[ShareClaimant], caps: dict[str, int]) -> dict[str, int]:
    """Give each claimant weight x level, cut to its cap and raised to its floor, at the level that uses up the
    total."""
    amounts = {claimant.name: claimant.floor for claimant in claimants}
    weighty = [claimant for claimant in claimants if claimant.weight and caps[claimant.name] > claimant.floor]
    precision = _precision(claimant.weight for claimant in weighty)
    events = [
        ((amount << precision) // claimant.weight, kind, index)
        for index, claimant in enumerate(weighty)
        for kind, amount in ((_START, claimant.floor), (_STOP, caps[claimant.name]))
    ]
    events.sort()
    fixed, slope = sum(amounts.values()), 0
    active: dict[int, ShareClaimant] = {}
    for _, kind, index in events:
        claimant = weighty[index]
        amount = claimant.floor if kind == _START else caps[claimant.name]
        if fixed * claimant.weight + slope * amount >= total * claimant.weight:
            break
        if kind == _START:
            active[index] = claimant
            fixed -= amount
            slope += claimant.weight
        else:
            del active[index]
            amounts[claimant.name] = amount
            fixed += amount
            slope -= claimant.weight
    _round(total, amounts, [(c.weight * (total - fixed), c.name) for c in active.values()], slope)
    return amounts


def _round(total: int, amounts: dict[str, int], lines: list[tuple[int, str]], denominator: int) -> None:
    """Store the integer parts of numerator / denominator, and give the rest of the total to the largest
    remainders."""
    if not lines:
        return
    remainders = []
    for numerator, name in lines:
        amounts[name], remainder = divmod(numerator, denominator)
        remainders.append((remainder, name))
    for name in largest_remainders(total - sum(amounts.values()), remainders):
        amounts[name] += 1


def _precision(weights: Iterable[int]) -> int:
    """Return the number of binary digits that order amount / weight exactly: different quotients differ by at least
    1 / weight²."""
    return 2 * max(weights, default=1).bit_length()
