"""Parts of shared devices that pods ask for by annotations and extended resources."""

from __future__ import annotations

import msgspec


class DeviceNeed(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod asks of the cards of its node."""
