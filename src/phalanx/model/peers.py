"""What a pod asks of other pods: near whom, far from whom, and how evenly."""

from __future__ import annotations

import msgspec


class Peers(msgspec.Struct, frozen=True, cache_hash=True):
    """All that a pod's spec says about other pods."""


NO_PEERS = Peers()
