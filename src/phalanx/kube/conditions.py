"""One condition of a pod's status."""

from __future__ import annotations

import msgspec

__all__ = ["PodCondition"]


class PodCondition(msgspec.Struct, frozen=True):
    """A condition as it is wanted, or as it was read (what else a read one has does not matter here)."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
