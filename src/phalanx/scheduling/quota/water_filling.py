"""Weighted max-min fairness ("water-filling") with floors and caps, in whole units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_START, _STOP = 0, 1


class ShareClaimant(NamedTuple):
    """One who shares in one resource: never below `floor` (its guarantee), never above the larger of `floor` and
    `cap` (what it asks for, or may have), in between by `weight`. Amounts and weights are not negative.
    """

    name: str
    weight: int
    cap: int
    floor: int = 0


class ShareRequest(NamedTuple):
    """One who shares in several resources. What a request does not name is not asked for, a guarantee that is not
    named is 0, a capability that is not named is unlimited; `weights` override `weight` per resource.
    """

    name: str
    weight: int
    request: Mapping[str, int]
    guarantee: Mapping[str, int] = {}
    capability: Mapping[str, int] = {}
    weights: Mapping[str, int] = {}


def deserved(total: Mapping[str, int], claims: Sequence[ShareRequest]) -> dict[str, dict[str, int]]:
    """name -> resource -> amount, for every resource of `total`.

    Volcano's proportion plugin (proportion.go): nobody gets more than he requests or than his real capability (see
    `real_capability`), nobody less than his guarantee.
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
        # What each could have at most (see `real_capability`), but not less than its guarantee.
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
    """The most one can have while the guarantees of all others (`guaranteed` is the sum, its own included) hold."""
    limit = max(0, total - guaranteed) + guarantee
    return limit if capability is None else min(capability, limit)


def fill(total: int, claimants: Sequence[ShareClaimant]) -> dict[str, int]:
    """name -> amount. The sum is the total, or less where all caps are reached, or more where the floors alone are.

    This is what Volcano's iteration (proportion.go) tends to. Its first round gives everyone his weight's part of
    the total, cut to his cap and lifted to his floor; what the caps left over goes by weight to those below their
    caps, on top of what they have (on top of a floor too). Where the lifts of the first round would hand out more
    than there is, as they do in Volcano, all who are not lifted stay on one lower level instead. Units that cannot
    be divided go one each to the largest remainders, ties to the first names. O(n log n).
    """
    caps = {claimant.name: max(claimant.cap, claimant.floor) for claimant in claimants}
    if sum(caps.values()) <= total:
        return caps
    weights = sum(claimant.weight for claimant in claimants)
    floors = sum(claimant.floor for claimant in claimants)
    if floors >= total or not weights:
        return {claimant.name: claimant.floor for claimant in claimants}
    # In units of 1 / weights everything in the first round is whole.
    first = {
        claimant.name: max(claimant.floor * weights, min(caps[claimant.name] * weights, claimant.weight * total))
        for claimant in claimants
    }
    pool = total * weights - sum(first.values())
    if pool < 0:
        return _level(total, claimants, caps)
    return _rise(total, claimants, caps, first, weights, pool)


def largest_remainders(units: int, remainders: Iterable[tuple[int, str]]) -> list[str]:
    """The names that get one of so many units that are left: the largest remainders, ties by name."""
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
    """Shares `pool` by weight among those whose part of `first` (both in 1 / unit) is below their cap."""
    amounts = {
        name: caps[name] if part == caps[name] * unit else part // unit for name, part in first.items()
    }  # what has no weight stays at its floor, which is whole
    rooms = [(claimant, caps[claimant.name] * unit - first[claimant.name]) for claimant in claimants]
    rising = [(claimant, room) for claimant, room in rooms if room and claimant.weight]
    precision = _precision(rising_claimant.weight for rising_claimant, _ in rising)
    rising.sort(key=lambda entry: (entry[1] << precision) // entry[0].weight)
    weight = sum(claimant.weight for claimant, _ in rising)
    left = 0
    for claimant, room in rising:
        if room * weight > claimant.weight * pool:
            break
        amounts[claimant.name] = caps[claimant.name]
        pool -= room
        weight -= claimant.weight
        left += 1
    lines = [(first[c.name] * weight + c.weight * pool, c.name) for c, _ in rising[left:]]
    _round(total, amounts, lines, unit * weight)
    return amounts


def _level(total: int, claimants: Sequence[ShareClaimant], caps: dict[str, int]) -> dict[str, int]:
    """Everyone gets weight x level, cut to his cap and lifted to his floor, at the level that uses up the total."""
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
    """Writes the whole parts of numerator / denominator, and the units that are missing to the total."""
    if not lines:
        return
    remainders = []
    for numerator, name in lines:
        amounts[name], remainder = divmod(numerator, denominator)
        remainders.append((remainder, name))
    for name in largest_remainders(total - sum(amounts.values()), remainders):
        amounts[name] += 1


def _precision(weights: Iterable[int]) -> int:
    """So many bits after the point order amount / weight exactly: two that differ do by 1 / weight² at least."""
    return 2 * max(weights, default=1).bit_length()
