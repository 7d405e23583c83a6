"""Amounts of named resources as exact integers.

Units: `cpu` in thousandths of a core, everything else in whole units (bytes, devices, pods).
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.model.text.quantity import MAX_AMOUNT as MAX_AMOUNT
from phalanx.model.text.quantity import parse_quantity

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"

# Sorted by name, no zero amounts: equal requests are equal (and hash equal) as values.
Requests = tuple[tuple[str, int], ...]
# Of a pod's usage: no amounts at all would mean what pods of its class take.
NO_AMOUNTS: Requests = ((CPU, 0),)


def scale_of(resource: str) -> int:
    """How many of our units make one Kubernetes unit of `resource`."""
    return 1000 if resource == CPU else 1


def parse_amount(resource: str, value: object) -> int:
    """One quantity of `resource` in our units, clamped to ±MAX_AMOUNT. Raises QuantityError."""
    return max(-MAX_AMOUNT, min(MAX_AMOUNT, parse_quantity(value, scale_of(resource))))


def requests_of(amounts: Mapping[str, int]) -> Requests:
    """The canonical form of a mapping: sorted, zeros left out."""
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def add_requests(left: Requests, right: Requests) -> Requests:
    total = dict(left)
    for name, amount in right:
        total[name] = total.get(name, 0) + amount
    return requests_of(total)
