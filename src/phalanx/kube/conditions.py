"""One condition of a pod's status."""

from __future__ import annotations

import msgspec

__all__ = ["PodCondition"]


class PodCondition(msgspec.Struct, frozen=True):
    """Condition of a pod's status, to write or as read, reduced to the fields that the scheduler uses."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
