"""Placeholders: members that a gang's leader is going to make, as pods that hold their room until they come."""

from __future__ import annotations

import heapq

from phalanx.cluster.pods.records import GangRecord, PodRecord


class Placeholders(dict[str, PodRecord]):
    """By uid, with the time at which each that holds room gives it back.

    A placeholder is placed with its gang's quorum and never bound. It is nominated until a member of the gang takes
    its place, somebody who is worth more its room, its leader is gone, or its time is over.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ends: list[tuple[float, str]] = []

    def end_at(self, uid: str, when: float) -> None:
        """The first of the times that are told counts."""
        if when:
            heapq.heappush(self._ends, (when, uid))

    @property
    def next_end(self) -> float | None:
        """When the next of them gives its room back."""
        while self._ends and self._ends[0][1] not in self:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def pop_ended(self, now: float) -> list[PodRecord]:
        """Those whose time is over, each once."""
        ended: dict[str, PodRecord] = {}
        while self._ends and self._ends[0][0] <= now:
            _, uid = heapq.heappop(self._ends)
            if uid in self:
                ended[uid] = self[uid]
        return list(ended.values())


def next_to_claim(gang: GangRecord, node: str) -> PodRecord | None:
    """The placeholder whose place one more member of the gang takes: on its node if it has one, else in their order
    one that holds room."""
    if gang.spec is None or len(gang.members) < gang.spec.min_member:
        return None
    held = [each for each in gang.placeholders.values() if each.nomination is not None]
    near = [each for each in held if node and each.nominated_node == node]
    return min(near or held or gang.placeholders.values(), key=lambda each: each.order, default=None)
