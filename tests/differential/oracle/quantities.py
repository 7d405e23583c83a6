"""Amounts as exact fractions. Source: staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go."""

from __future__ import annotations

import math
import re
from fractions import Fraction

_FORM = re.compile(r"^([+-]?)(\d+\.?\d*|\.\d+)(?:([eE])([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)$")
_DECIMAL = {"n": -9, "u": -6, "m": -3, None: 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def amount(value: object) -> Fraction:
    """Raises ValueError where the value is no quantity."""
    match = _FORM.match(str(value))
    if match is None or isinstance(value, bool):
        raise ValueError(f"{value!r} is no quantity")
    sign, digits, exponent_mark, exponent, suffix = match.groups()
    number = Fraction(digits if not digits.endswith(".") else digits[:-1])
    if exponent_mark:
        number *= Fraction(10) ** int(exponent)
    elif suffix in _BINARY:
        number *= 2 ** _BINARY[suffix]
    else:
        number *= Fraction(10) ** _DECIMAL[suffix]
    return -number if sign == "-" else number


def milli(value: Fraction) -> int:
    """Thousandths, rounded up: how CPU is counted."""
    return math.ceil(value * 1000)


def whole(value: Fraction) -> int:
    """Units, rounded up: how everything else is counted."""
    return math.ceil(value)
