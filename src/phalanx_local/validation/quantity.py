"""Kubernetes quantities: exact parsing, ordering, rounding and the canonical spelling.

Grammar: a sign, digits with an optional point, and a suffix: binary (``Ki Mi Gi Ti Pi Ei``), decimal
(``n u m k M G T P E`` or none) or a decimal exponent (``e3``, ``E-2``). As in the API server, values finer than
one nano are rounded away from zero, binary magnitudes above 2^63-1 are cut off there, missing digits count as zero
(``.``, ``k``) and space around the text is ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from phalanx.model.decoding import MAX_NUMBER

Style = Literal["binary", "decimal", "exponent"]

_BINARY: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIX_OF: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_GRAMMAR: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?P<suffix>[eEinumkKMGTP]*[+-]?[0-9]*)"
)
_EXPONENT: Final = re.compile(r"[eE]([+-]?[0-9]+)")
NANO: Final = 10**9
_HUGE: Final = 10**40
_LIMIT: Final = (2**63 - 1) * NANO

#: What the API server says of a quantity that does not parse.
GRAMMAR_ERROR: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_ERROR: Final = "unable to parse quantity's suffix"


class QuantityError(ValueError):
    """The text is not a quantity."""


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount in billionths, with the style that its text had (ignored when comparing)."""

    nano: int
    style: Style = field(default="decimal", compare=False)

    def ceil(self) -> int:
        """The amount rounded up (away from zero for negative amounts) to whole units."""
        return -(-self.nano // NANO) if self.nano >= 0 else self.nano // NANO

    def milli(self) -> int:
        """The amount in thousandths, rounded up."""
        return -(-self.nano // 10**6) if self.nano >= 0 else self.nano // 10**6

    @property
    def whole(self) -> bool:
        """Whether the amount is a whole number of units."""
        return self.nano % NANO == 0

    def __str__(self) -> str:
        return canonical(self)


def parse_quantity(value: object) -> Quantity:
    """The quantity that a JSON string (or number) spells; QuantityError when it spells none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(GRAMMAR_ERROR)
    return _parse(value if isinstance(value, str) else repr(value) if abs(value) < _HUGE else "")


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _GRAMMAR.fullmatch(text.strip()) if len(text) <= MAX_NUMBER else None
    if match is None or not text:
        raise QuantityError(GRAMMAR_ERROR)
    suffix, part = match["suffix"], match["part"] or ""
    digits = int(match["whole"] + part or "0")
    style: Style
    if suffix in _BINARY:
        style = "binary"
        nano = _ceil_div(digits * _BINARY[suffix] * NANO, 10 ** len(part))
        nano = min(nano, _LIMIT)
    else:
        scientific = _EXPONENT.fullmatch(suffix)
        if scientific is not None:
            style, exponent = "exponent", int(scientific[1])
        elif suffix in _DECIMAL:
            style, exponent = "decimal", _DECIMAL[suffix]
        else:
            raise QuantityError(SUFFIX_ERROR)
        # An exponent beyond any amount would only cost time.
        shift = max(-400, min(400, exponent)) + 9 - len(part)
        nano = digits * 10**shift if shift >= 0 else _ceil_div(digits, 10**-shift)
    return Quantity(-nano if match["sign"] == "-" else nano, style)


def _ceil_div(amount: int, divisor: int) -> int:
    return -(-amount // divisor)


def canonical(quantity: Quantity) -> str:
    """The spelling that the API server stores: no fraction digits, the largest suffix that keeps it exact."""
    nano, style = quantity.nano, quantity.style
    if nano == 0:
        return "0"
    if style == "binary":
        if nano % NANO == 0 and abs(nano) >= 1024 * NANO:
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
    return f"{nano}{_SUFFIX_OF[exponent]}"
