"""What has changed in the cluster, for those who look at it again: versions, and the gangs and pods concerned."""

from __future__ import annotations

from phalanx.model.gang import GangKey


class Changes:
    """`version` counts the changes after which what was said may no longer be true, `freed` those after which what
    did not fit may fit, `bound` the pods that have arrived where we placed them.

    `gangs` and (standalone) `pods` that changed are collected until somebody takes them.
    """

    __slots__ = ("bound", "freed", "gangs", "pods", "version")

    def __init__(self) -> None:
        self.version = 0
        self.freed = 0
        self.bound = 0
        self.gangs: dict[GangKey, None] = {}
        self.pods: dict[str, None] = {}

    def may_fit(self) -> None:
        """Something that was refused may be possible now."""
        self.version += 1
        self.freed += 1

    def pop(self) -> tuple[dict[GangKey, None], dict[str, None]]:
        """The gangs and standalone pods that changed since the last call, oldest change first."""
        changed, self.gangs, self.pods = (self.gangs, self.pods), {}, {}
        return changed
