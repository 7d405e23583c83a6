"""Exact amounts: whole numbers of nano-units, of any size."""

from __future__ import annotations

from phalanx.model.text.quantity import exact_quantity


def nano(text: str) -> int:
    """Return a quantity in nano-units, rounded away from zero. Raise QuantityError."""
    return exact_quantity(text).nano


def written(amount: int) -> str:
    """Return an amount of nano-units as a Kubernetes quantity."""
    for suffix, power in (("", 9), ("m", 6), ("u", 3)):
        if amount % 10**power == 0:
            return f"{amount // 10**power}{suffix}"
    return f"{amount}n"
