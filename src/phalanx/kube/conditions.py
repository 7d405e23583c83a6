"""One condition of a pod's status."""

from __future__ import annotations

import msgspec

__all__ = ["PodCondition"]


class PodCondition(msgspec.Struct, frozen=True):
    """A desired condition, or a condition that was read (reduced to the fields that matter here)."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
