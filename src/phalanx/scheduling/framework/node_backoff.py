"""Nodes whose kubelet has refused a pod are left alone for a while.

A pod that its kubelet refuses is lost, its controller makes another at once, and the same node is still the best
one for it: without a pause that goes round until the controller gives up. The kubelet knows something that we do
not (a pod of another scheduler, a device that failed), and tells it by and by.
"""

from __future__ import annotations

import msgspec

# Seconds: how long a node rests at first, twice as long each further time, at most; and when it is forgotten.
FIRST_REST = 30.0
LONGEST_REST = 480.0
FORGOTTEN_AFTER = 3600.0


class _Rest(msgspec.Struct):
    until: float
    last: float
    times: int


class NodeBackoff:
    """By the name of the node; times are in seconds since the epoch."""

    def __init__(self) -> None:
        self._rests: dict[str, _Rest] = {}

    def refused(self, node: str, now: float) -> float:
        """The kubelet of a node has refused a pod; until when the node rests.

        Pods that were sent there before it rested say nothing new.
        """
        rest = self._rests.get(node)
        if rest is None or rest.last + FORGOTTEN_AFTER <= now:
            rest = self._rests[node] = _Rest(now, now, 0)
        if rest.until <= now:
            rest.until = now + min(LONGEST_REST, FIRST_REST * 2.0**rest.times)
            rest.times += 1
        rest.last = now
        return rest.until

    def resting(self, now: float) -> tuple[str, ...]:
        """The nodes that rest now, sorted; what is old is forgotten."""
        for node in [
            node for node, rest in self._rests.items() if rest.last + FORGOTTEN_AFTER <= now >= rest.until
        ]:
            del self._rests[node]
        return tuple(sorted(node for node, rest in self._rests.items() if rest.until > now))

    def next_end(self, now: float) -> float | None:
        """When the next node has rested enough."""
        return min((rest.until for rest in self._rests.values() if rest.until > now), default=None)
