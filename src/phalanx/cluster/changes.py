"""Changes of the cluster since the last reading: version numbers, and the affected gangs and pods."""

from __future__ import annotations

from phalanx.model.gang import GangKey


class Changes:
    """`version` counts changes that can outdate a verdict, `freed` those that can make room, and `bound` the pods
    whose binding the API has confirmed.

    Changed `gangs` and standalone `pods` are collected until `pop`.
    """

    __slots__ = ("bound", "freed", "gangs", "pods", "version")

    def __init__(self) -> None:
        self.version = 0
        self.freed = 0
        self.bound = 0
        self.gangs: dict[GangKey, None] = {}
        self.pods: dict[str, None] = {}

    def may_fit(self) -> None:
        """Record that a gang or pod that did not fit can fit now."""
        self.version += 1
        self.freed += 1

    def pop(self) -> tuple[dict[GangKey, None], dict[str, None]]:
        """Return the gangs and standalone pods that changed since the last call, oldest change first."""
        changed, self.gangs, self.pods = (self.gangs, self.pods), {}, {}
        return changed
