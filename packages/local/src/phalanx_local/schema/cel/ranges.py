"""Ranges of CEL sizes and costs; arithmetic saturates at the largest 64-bit number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

LIMIT: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Range:
    """Range of sizes or costs from ``low`` to ``high``, both included."""

    low: int
    high: int

    def __add__(self, other: Range) -> Range:
        return Range(min(self.low + other.low, LIMIT), min(self.high + other.high, LIMIT))

    def __mul__(self, other: Range | float) -> Range:
        """Return the product of two ranges; for a plain number each end is rounded up."""
        if isinstance(other, Range):
            return Range(min(self.low * other.low, LIMIT), min(self.high * other.high, LIMIT))
        return Range(_scaled(self.low, other), _scaled(self.high, other))

    def __or__(self, other: Range) -> Range:
        """Return the smallest range that contains both ranges."""
        return Range(min(self.low, other.low), max(self.high, other.high))


def _scaled(number: int, factor: float) -> int:
    # Floating point like the original: the last digit can depend on it.
    product = math.ceil(float(number) * factor)
    return LIMIT if product >= 2**64 else product


def fixed(number: int) -> Range:
    """Return the range that contains one number."""
    return Range(number, number)


ZERO: Final = fixed(0)
ONE: Final = fixed(1)
UNKNOWN: Final = Range(0, LIMIT)
