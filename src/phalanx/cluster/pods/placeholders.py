"""Placeholders: future members that a gang's leader creates later, as pods for which resources are reserved."""

from __future__ import annotations

import heapq

from phalanx.cluster.pods.records import GangRecord, PodRecord


class Placeholders(dict[str, PodRecord]):
    """Placeholders by uid, with the times at which they release their reserved resources.

    A placeholder is placed with its gang's quorum and never bound. It is nominated until a member of the gang
    replaces it, a pod of higher priority uses its room, its leader is gone, or its time is over.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ends: list[tuple[float, str]] = []

    def end_at(self, uid: str, when: float) -> None:
        """Set the time at which a placeholder releases its reserved resources; the earliest one set counts."""
        if when:
            heapq.heappush(self._ends, (when, uid))

    @property
    def next_end(self) -> float | None:
        """When the next placeholder releases its reserved resources."""
        while self._ends and self._ends[0][1] not in self:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def pop_ended(self, now: float) -> list[PodRecord]:
        """Remove and return the placeholders whose time has ended, each once."""
        ended: dict[str, PodRecord] = {}
        while self._ends and self._ends[0][0] <= now:
            _, uid = heapq.heappop(self._ends)
            if uid in self:
                ended[uid] = self[uid]
        return list(ended.values())


def next_to_claim(gang: GangRecord, node: str) -> PodRecord | None:
    """Return the placeholder that a new member of the gang replaces: the one on its node, else the first in
    order that reserves room."""
    if gang.spec is None or len(gang.members) < gang.spec.min_member:
        return None
    reserving = [placeholder for placeholder in gang.placeholders.values() if placeholder.nomination is not None]
    on_node = [placeholder for placeholder in reserving if node and placeholder.nominated_node == node]
    return min(
        on_node or reserving or gang.placeholders.values(), key=lambda placeholder: placeholder.order, default=None
    )
