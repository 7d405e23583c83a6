"""Durations as users write them."""

from __future__ import annotations

import re

from phalanx.model.text.decoding import quoted
from phalanx.simulation.errors import InputError

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
EXAMPLES = "seconds, or a number with s, m, h, d or w: 3600, 90m, 12h, 30d"


def seconds(value: object, place: str) -> int:
    """Parse a duration; `place` names its place in the message. Raises InputError."""
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,12})([smhdw]?)", value.strip())
        if match is not None:
            return int(match[1]) * _UNITS[match[2]]
    elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12:
        return value
    raise InputError(f"{place} is {quoted(value)}; write {EXAMPLES}")
