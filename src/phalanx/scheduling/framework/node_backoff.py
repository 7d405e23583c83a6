"""Back-off of nodes whose kubelet rejected a pod.

A pod that its kubelet rejects is lost, and its controller creates a replacement at once. The same node is still the
best one for it, so without a pause this repeats until the controller gives up. The kubelet has information that the
scheduler gets later: a pod of another scheduler, a failed device.
"""

from __future__ import annotations

import msgspec

# Seconds: first back-off of a node, doubled at each rejection up to the longest; an entry expires after the last.
FIRST_REST = 30.0
LONGEST_REST = 480.0
FORGOTTEN_AFTER = 3600.0


class _Entry(msgspec.Struct):
    until: float
    last: float
    times: int


class NodeBackoff:
    """Back-offs by node name; times are in seconds since the epoch."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def refused(self, node: str, now: float) -> float:
        """Record a rejection by the kubelet of a node; return the end of the back-off.

        Rejections of pods that were bound before the back-off do not extend it.
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
        """Return the sorted names of nodes in back-off; remove expired entries."""
        for node in [
            node for node, entry in self._entries.items() if entry.last + FORGOTTEN_AFTER <= now >= entry.until
        ]:
            del self._entries[node]
        return tuple(sorted(node for node, entry in self._entries.items() if entry.until > now))

    def next_end(self, now: float) -> float | None:
        """Return the end of the next back-off; None if there is none."""
        return min((entry.until for entry in self._entries.values() if entry.until > now), default=None)
