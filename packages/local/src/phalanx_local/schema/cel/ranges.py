"""Ranges of sizes and costs; arithmetic on them stops at the largest number of 64 bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

LIMIT: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Range:
    """From ``low`` to ``high``, both included."""

    low: int
    high: int

    def __add__(self, other: Range) -> Range:
        return Range(min(self.low + other.low, LIMIT), min(self.high + other.high, LIMIT))

    def __mul__(self, other: Range | float) -> Range:
        """The product; by a plain number each end is rounded up."""
        if isinstance(other, Range):
            return Range(min(self.low * other.low, LIMIT), min(self.high * other.high, LIMIT))
        return Range(_scaled(self.low, other), _scaled(self.high, other))

    def __or__(self, other: Range) -> Range:
        """The smallest range that holds both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


def _scaled(number: int, factor: float) -> int:
    # In floating point, as the original does it: the last digit may depend on it.
    product = math.ceil(float(number) * factor)
    return LIMIT if product >= 2**64 else product


def fixed(number: int) -> Range:
    """The range of one number."""
    return Range(number, number)


ZERO: Final = fixed(0)
ONE: Final = fixed(1)
UNKNOWN: Final = Range(0, LIMIT)
