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


class _Entry(msgspec.Struct):
    until: float
    last: float
    times: int


class NodeBackoff:
    """By the name of the node; times are in seconds since the epoch."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def refused(self, node: str, now: float) -> float:
        """The kubelet of a node has refused a pod; until when it is left alone.

        Pods that were sent there before it rested say nothing new.
        """
        entry = self._entries.get(node)
        if entry is None or entry.last + FORGOTTEN_AFTER <= now:
            entry = self._entries[node] = _Entry(now, now, 0)
        if entry.until <= now:
            entry.until = now + min(LONGEST_REST, FIRST_REST * 2.0**entry.times)
            entry.times += 1
        entry.last = now
        return entry.until

    def backed_off(self, now: float) -> tuple[str, ...]:
        """The nodes that are left alone now, sorted; what is old is forgotten."""
        for node in [
            node for node, entry in self._entries.items() if entry.last + FORGOTTEN_AFTER <= now >= entry.until
        ]:
            del self._entries[node]
        return tuple(sorted(node for node, entry in self._entries.items() if entry.until > now))

    def next_end(self, now: float) -> float | None:
        """When the next node has rested enough."""
        return min((entry.until for entry in self._entries.values() if entry.until > now), default=None)
