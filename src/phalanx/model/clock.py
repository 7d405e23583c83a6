"""Conversion of clock readings into the time of the core: whole seconds since the epoch."""

from __future__ import annotations

import math


def whole_seconds(reading: float) -> int:
    """Return a reading of a clock in whole seconds, rounded down.

    Starts and limits of pods are whole seconds. With a fraction, a unit that is due ends a moment after the window
    that was reserved for it.
    """
    return math.floor(reading)
