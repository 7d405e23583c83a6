"""How close to each other the members of a gang have to be."""

from __future__ import annotations

import msgspec


class TopologyRule(msgspec.Struct, frozen=True, cache_hash=True):
    """How close the members of a gang, or of a part of it, have to be or should be."""


class SubgroupRule(msgspec.Struct, frozen=True, cache_hash=True):
    """Parts of a gang that have to be closer to each other than the whole."""
