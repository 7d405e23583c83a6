"""Kubernetes quantities as exact numbers.

The grammar is that of `k8s.io/apimachinery/pkg/api/resource`: a signed decimal number followed by a decimal SI
suffix (n u m k M G T P E), a binary suffix (Ki Mi Gi Ti Pi Ei) or a decimal exponent (e3, E3). As there, missing
digits count as zero, amounts finer than one nano are rounded away from zero, and binary amounts are capped at
2^63-1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from phalanx.model.text.decoding import MAX_NUMBER, quoted

NANO: Final = 10**9
# The API server has the same cap, so a larger number is no error.
MAX_QUANTITY: Final = 2**63 - 1
# Amounts are capped so that sums over a node stay far inside int64 and single amounts are exact in float64. 2**53
# bytes are 8 PiB on one node: a capped request still never fits.
MAX_AMOUNT: Final = 2**53
# Amounts from this size on are displayed with few digits.
_ABSURD: Final = 10**15

QuantityStyle = Literal["binary", "decimal", "exponent"]

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<suffix>[eEinumkKMGTP]*[+-]?[0-9]*)"
)
_EXPONENT: Final = re.compile(r"[eE]([+-]?[0-9]+)")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
# A larger exponent exceeds any amount and would only cost time.
_EXPONENT_LIMIT: Final = 400
_GRAMMAR: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class QuantityError(ValueError):
    """Error for a text that is not a Kubernetes quantity; `reason` is the message of the API server."""

    def __init__(self, text: object, reason: str = _GRAMMAR) -> None:
        super().__init__(f"{quoted(text)} is not a quantity such as 2, 500m, 1.5Gi or 1e3")
        self.text = text
        self.reason = reason


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """Kubernetes quantity: an exact amount in billionths, with the style of its text (ignored in comparisons)."""

    nano: int
    style: QuantityStyle = field(default="decimal", compare=False)

    @property
    def is_integer(self) -> bool:
        return self.nano % NANO == 0

    def __str__(self) -> str:
        """Format the quantity like the API server: without fraction digits, with the largest exact suffix."""
        nano, style = self.nano, self.style
        if nano == 0:
            return "0"
        if style == "binary":
            if self.is_integer and abs(nano) >= 1024 * NANO:
                amount, best = nano // NANO, ""
                for suffix, size in _BINARY.items():
                    if amount % size == 0:
                        best = suffix
                return f"{amount // _BINARY[best]}{best}" if best else str(amount)
            style = "decimal"
        exponent = -9
        while nano % 1000 == 0 and (exponent < 18 or style == "exponent"):
            nano //= 1000
            exponent += 3
        if style == "exponent":
            return f"{nano}e{exponent}" if exponent else str(nano)
        return f"{nano}{_SUFFIXES[exponent]}"


@lru_cache(maxsize=4096)
def exact_quantity(text: str) -> Quantity:
    """Parse a Kubernetes quantity exactly. Raise QuantityError."""
    return Quantity(*_amount(text))


def _amount(text: str) -> tuple[int, QuantityStyle]:
    match = _QUANTITY.fullmatch(text) if len(text) <= MAX_NUMBER else None
    if match is None or not text:
        raise QuantityError(text)
    suffix, fraction = match["suffix"], match["fraction"] or ""
    digits = int(match["whole"] + fraction or "0")
    style: QuantityStyle
    if suffix in _BINARY:
        style = "binary"
        nano = min(MAX_QUANTITY * NANO, -(-digits * _BINARY[suffix] * NANO // 10 ** len(fraction)))
    else:
        scientific = _EXPONENT.fullmatch(suffix)
        if scientific is not None:
            style, exponent = "exponent", int(scientific[1])
        elif suffix in _DECIMAL:
            style, exponent = "decimal", _DECIMAL[suffix]
        else:
            raise QuantityError(text, "unable to parse quantity's suffix")
        shift = max(-_EXPONENT_LIMIT, min(_EXPONENT_LIMIT, exponent)) + 9 - len(fraction)
        nano = digits * 10**shift if shift >= 0 else -(-digits // 10**-shift)
    return -nano if match["sign"] == "-" else nano, style


def read_quantity(value: object) -> Quantity:
    """Return a quantity from its JSON value: a string, with surrounding spaces ignored, or a number.

    Raises QuantityError.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(value)
    return exact_quantity(value.strip() if isinstance(value, str) else repr(value))


def parse_quantity(value: object, scale: int = 1) -> int:
    """Parse a Kubernetes quantity in units of 1/`scale`, rounded away from zero, capped at ±MAX_QUANTITY.

    `scale` is 1 for bytes and counts and 1000 for milli-CPU. Raises QuantityError.
    """
    if isinstance(value, str):
        return _scaled(value, scale)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError(value)
    if isinstance(value, int):
        return max(-MAX_QUANTITY, min(MAX_QUANTITY, value * scale))
    return _scaled(repr(value), scale)


@lru_cache(maxsize=4096)
def _scaled(text: str, scale: int) -> int:
    nano, _ = _amount(text)
    magnitude = min(MAX_QUANTITY, -(-abs(nano) * scale // NANO))
    return -magnitude if nano < 0 else magnitude


def format_quantity(amount: int, resource: str) -> str:
    """Format a resource amount for users: `500m` CPU, `4Gi` memory, `8` GPUs; absurd amounts as `1.2e12`.

    `amount` is in the units of `resource` (see `phalanx.model.resources`). MAX_AMOUNT, the cap, is displayed as
    `9e12+`. For output that programs read, use `canonical_quantity`.
    """
    if _is_bytes(resource):
        # Sums of memory can be larger than any single request.
        return _bytes(amount) + ("+" if amount == MAX_AMOUNT else "")
    if abs(amount) >= _ABSURD:
        text = _first_digits(amount // 1000 if resource == "cpu" else amount)
        return text + ("+" if amount >= MAX_AMOUNT else "")
    return canonical_quantity(amount, resource)


def format_alike(resource: str, *amounts: int) -> list[str]:
    """Format amounts of one sentence in one unit: CPU as `72.8` beside `120`, not as `72800m`."""
    whole, small = all(amount % 1000 == 0 for amount in amounts), all(abs(amount) < 1000 for amount in amounts)
    if resource != "cpu" or whole or small or max(map(abs, amounts)) >= _ABSURD:
        return [format_quantity(amount, resource) for amount in amounts]
    return [f"{amount / 1000:.3f}".rstrip("0").rstrip(".") for amount in amounts]


def canonical_quantity(amount: int, resource: str) -> str:
    """Format a resource amount as an exact quantity for programs."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if amount and _is_bytes(resource):
        for suffix, size in reversed(_BINARY.items()):
            if amount % size == 0:
                return f"{amount // size}{suffix}"
    return str(amount)


def _is_bytes(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")


def _bytes(amount: int) -> str:
    for suffix, size in reversed(_BINARY.items()):
        if abs(amount) >= _ABSURD * size:
            return _first_digits(amount // size) + suffix
        if amount and amount % size == 0:
            return f"{amount // size}{suffix}"
        if abs(amount) >= 10 * size:
            return f"{amount / size:.1f}{suffix}"
    return str(amount)


def _first_digits(number: int) -> str:
    """Format a number as `9.1e12`, rounded down so that it does not exceed the real amount."""
    digits = str(abs(number))
    mantissa = f"{digits[0]}.{digits[1]}".removesuffix(".0")
    return f"{'-' if number < 0 else ''}{mantissa}e{len(digits) - 1}"
