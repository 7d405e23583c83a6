"""Number of random worlds per test: a part in `make test`, all of them in `make test-slow`."""

from __future__ import annotations

import os

# `make test-slow` sets it, and runs the tests that are marked `thorough` again, at full length.
FULL = bool(os.environ.get("PHALANX_FULL"))
_EVERYDAY_PART = 4


def examples(count: int) -> int:
    """Return the number of random examples to draw: `count` at full length, else a quarter of it, at least 5."""
    return count if FULL else min(count, max(5, count // _EVERYDAY_PART))
