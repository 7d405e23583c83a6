"""Dominant shares (Ghodsi et al., "Dominant Resource Fairness", NSDI 2011), exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

NOTHING = Fraction(0)
EVERYTHING = Fraction(1)


def dominant_share(
    held: Iterable[tuple[str, int]], total: Mapping[str, int], weight: int = 1, *, unfounded: bool = False
) -> Fraction:
    """Return the dominant share of a queue or gang: the largest held / total over the resources held, divided by
    `weight`.

    A resource with a total of 0 is ignored; with `unfounded`, holding some of it counts as holding all of it
    (Volcano's api/helpers Share).
    """
    best, whole = _largest(held, total, unfounded)
    return Fraction(best, whole * weight) if best else NOTHING


def order_by_share(
    held: Iterable[tuple[str, int]], total: Mapping[str, int], weight: int = 1, *, unfounded: bool = False
) -> float:
    """Return `dominant_share` as a float to sort by, which compares much faster.

    A quotient of two integers is rounded correctly, so equal shares are equal keys.
    """
    best, whole = _largest(held, total, unfounded)
    return best / (whole * weight)


def _largest(held: Iterable[tuple[str, int]], total: Mapping[str, int], unfounded: bool) -> tuple[int, int]:
    """Return (held, total) of the dominant resource; (0, 1) if nothing is held of the total."""
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
    return best, whole


def dominant_resource(held: Iterable[tuple[str, int]], total: Mapping[str, int]) -> str:
    """Return the resource with the largest share, ties by name; "" if nothing is held of the total."""
    best, dominant = NOTHING, ""
    for resource, amount in sorted(held):
        share = dominant_share([(resource, amount)], total)
        if share > best:
            best, dominant = share, resource
    return dominant
