"""What a pod's resource claims (resource.k8s.io) ask for."""

from __future__ import annotations

import msgspec


class ClaimNeed(msgspec.Struct, frozen=True, cache_hash=True):
    """One resource claim of a pod."""
