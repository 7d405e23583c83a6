"""Kubernetes quantities as exact integers.

The grammar is that of `k8s.io/apimachinery/pkg/api/resource`: a signed decimal number followed by a decimal
SI suffix (n u m k M G T P E), a binary suffix (Ki Mi Gi Ti Pi Ei) or a decimal exponent (e3, E3).
A value is read once, at the door, and rounded up to whole units there; no fraction travels further.
"""

from __future__ import annotations

import re
from functools import lru_cache

from phalanx.model.decoding import MAX_NUMBER, quoted

# The API server caps at the same bound, so a larger number is not an error but "more than anything".
MAX_QUANTITY = 2**63 - 1

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
# Beyond this exponent every non-zero value is above MAX_QUANTITY (or below one nano-unit).
_EXPONENT_LIMIT = 60


class QuantityError(ValueError):
    """A text that is not a Kubernetes quantity."""

    def __init__(self, text: object) -> None:
        super().__init__(f"{quoted(text)} is not a quantity such as 2, 500m, 1.5Gi or 1e3")
        self.text = text


def parse_quantity(value: object, scale: int = 1) -> int:
    """The quantity in units of 1/`scale`, rounded away from zero, capped at ±MAX_QUANTITY.

    `scale` is 1 for bytes and counts and 1000 for milli-CPU. JSON numbers are accepted beside strings, because
    the API server accepts them too. Raises QuantityError.
    """
    if isinstance(value, str):
        if len(value) > MAX_NUMBER:
            raise QuantityError(value)
        return _parse_text(value, scale)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError(value)
    if isinstance(value, int):
        return max(-MAX_QUANTITY, min(MAX_QUANTITY, value * scale))
    return _parse_text(repr(value), scale)


@lru_cache(maxsize=4096)
def _parse_text(text: str, scale: int) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(text)
    whole, fraction = match["whole"], match["fraction"] or ""
    if not whole and not fraction:
        raise QuantityError(text)
    mantissa = int((whole + fraction) or "0") * scale
    exponent = -len(fraction)
    if match["exponent"] is not None:
        exponent += int(match["exponent"])
    elif match["suffix"] in _BINARY:
        mantissa *= _BINARY[match["suffix"]]
    else:
        exponent += _DECIMAL[match["suffix"] or ""]
    magnitude = _scale_by_ten(mantissa, exponent)
    return -magnitude if match["sign"] == "-" else magnitude


def _scale_by_ten(mantissa: int, exponent: int) -> int:
    if mantissa == 0:
        return 0
    if exponent >= 0:
        if exponent > _EXPONENT_LIMIT:
            return MAX_QUANTITY
        return min(MAX_QUANTITY, int(mantissa * 10**exponent))
    if -exponent > len(str(mantissa)) + _EXPONENT_LIMIT:
        return 1
    return min(MAX_QUANTITY, int(-(-mantissa // 10**-exponent)))


def format_quantity(amount: int, resource: str) -> str:
    """The amount as a person writes it: `500m` CPU, `4Gi` memory, `8` GPUs.

    `amount` is in the units of `resource` (see `phalanx.model.resources`).
    """
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
            size = _BINARY[suffix]
            if amount and amount % size == 0:
                return f"{amount // size}{suffix}"
            if abs(amount) >= 10 * size:
                return f"{amount / size:.1f}{suffix}"
    return str(amount)
