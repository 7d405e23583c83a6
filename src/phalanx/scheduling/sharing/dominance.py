"""Dominant shares (Ghodsi et al., "Dominant Resource Fairness", NSDI 2011), exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

NOTHING = Fraction(0)
EVERYTHING = Fraction(1)


def dominant_share(
    held: Iterable[tuple[str, int]], total: Mapping[str, int], weight: int = 1, *, unfounded: bool = False
) -> Fraction:
    """The largest held / total over the resources held, divided by `weight`.

    A resource of which the total is nothing is left out; with `unfounded` having something of it counts as having
    all of it (Volcano's api/helpers Share).
    """
    best, whole = 0, 1
    for resource, amount in held:
        if amount <= 0:
            continue
        offered = total.get(resource, 0)
        if offered <= 0:
            if not unfounded:
                continue
            amount = offered = 1
        if amount * whole > best * offered:
            best, whole = amount, offered
    if not best:
        return NOTHING
    return Fraction(best, whole * weight)


def dominant_resource(held: Iterable[tuple[str, int]], total: Mapping[str, int]) -> str:
    """The resource with the largest share, ties by name; "" if nothing is held of what there is."""
    best, found = NOTHING, ""
    for resource, amount in sorted(held):
        share = dominant_share([(resource, amount)], total)
        if share > best:
            best, found = share, resource
    return found
