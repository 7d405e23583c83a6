"""Back-off of nodes after their kubelet rejected a pod."""

from __future__ import annotations

from phalanx.scheduling.framework.node_backoff import NodeBackoff
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.session.session import Session


class RejectingNodes(CyclePlugin):
    """Wake-up of the cycle when a node rejects a pod and when its back-off ends.

    The plugin `node-backoff` is the filter.
    """

    name = "rejecting-nodes"

    def __init__(self, backoff: NodeBackoff) -> None:
        self._backoff = backoff
        self._next_end: float | None = None
        self._changed = False

    def rejected(self, node: str, now: float) -> float:
        """Record that a node's kubelet rejected a bound pod; return the end of the node's back-off."""
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
