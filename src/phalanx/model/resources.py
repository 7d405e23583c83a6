"""Amounts of named resources as exact integers.

Units: `cpu` in thousandths of a core, all other resources in whole units (bytes, devices, pods).
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
# Usage of a pod without amounts; an empty tuple would mean the requests of its class.
NO_AMOUNTS: Requests = ((CPU, 0),)


def scale_of(resource: str) -> int:
    """Return the number of internal units per Kubernetes unit of `resource`."""
    return 1000 if resource == CPU else 1


def parse_amount(resource: str, value: object) -> int:
    """Parse a quantity of `resource` to internal units, clamped to ±MAX_AMOUNT. Raise QuantityError."""
    return max(-MAX_AMOUNT, min(MAX_AMOUNT, parse_quantity(value, scale_of(resource))))


def requests_of(amounts: Mapping[str, int]) -> Requests:
    """Return resource amounts as a tuple sorted by name, without zeros."""
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def add_requests(left: Requests, right: Requests) -> Requests:
    total = dict(left)
    for name, amount in right:
        total[name] = total.get(name, 0) + amount
    return requests_of(total)
