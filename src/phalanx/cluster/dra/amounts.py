"""Kubernetes quantities without loss: whole numbers of nano-units, however large."""

from __future__ import annotations

import re
from functools import lru_cache

from phalanx.model.quantity import QuantityError

NANO = 10**9

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_DECIMAL = {"n": 0, "u": 3, "m": 6, "": 9, "k": 12, "M": 15, "G": 18, "T": 21, "P": 24, "E": 27}
_BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_LONGEST = 64


@lru_cache(maxsize=4096)
def nano(text: str) -> int:
    """The quantity in nano-units, rounded away from zero below that. Raises QuantityError."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or not (match["whole"] or match["fraction"]):
        raise QuantityError(text)
    fraction = match["fraction"] or ""
    mantissa, power = int(match["whole"] + fraction), 9 - len(fraction)
    if match["exponent"] is not None:
        power += int(match["exponent"])
    elif match["suffix"] in _BINARY:
        mantissa *= _BINARY[match["suffix"]]
    else:
        power += _DECIMAL[match["suffix"] or ""] - 9
    magnitude = int(mantissa * 10**power) if power >= 0 else -(-mantissa // int(10**-power))
    return -magnitude if match["sign"] == "-" else magnitude


def written(amount: int) -> str:
    """An amount of nano-units as a quantity."""
    for suffix, power in (("", 9), ("m", 6), ("u", 3)):
        if amount % 10**power == 0:
            return f"{amount // 10**power}{suffix}"
    return f"{amount}n"
