"""Groups of nodes that a queue may or should use."""

from __future__ import annotations

import msgspec


class PoolRule(msgspec.Struct, frozen=True, cache_hash=True):
    """Which groups of nodes a pod's queue requires, prefers and avoids."""
