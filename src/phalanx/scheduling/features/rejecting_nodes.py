"""Nodes whose kubelet rejected a pod: no pod is placed on them for a while."""

from __future__ import annotations

from phalanx.scheduling.framework.node_backoff import NodeBackoff
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.session.session import Session


class RejectingNodes(CyclePlugin):
    """Wakes the cycle when a node rejects a pod and when its back-off ends. (The plugin `node-backoff` filters.)"""

    name = "rejecting-nodes"

    def __init__(self, backoff: NodeBackoff) -> None:
        self._backoff = backoff
        self._next_end: float | None = None
        self._changed = False

    def rejected(self, node: str, now: float) -> float:
        """Record that the kubelet of a node rejected a pod that was bound to it; return when its back-off ends."""
        self._changed = True
        return self._backoff.refused(node, now)

    def outdated(self) -> bool:
        return self._changed

    def next_due(self) -> float | None:
        return self._next_end

    def advance(self, now: float) -> None:
        self._changed = False

    def published(self, session: Session) -> None:
        self._next_end = self._backoff.next_end(session.now)
