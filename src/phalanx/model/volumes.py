"""What a pod's volumes ask of its node."""

from __future__ import annotations

import msgspec


class VolumeNeed(msgspec.Struct, frozen=True, cache_hash=True):
    """One volume of a pod, as far as it decides where the pod may go."""
