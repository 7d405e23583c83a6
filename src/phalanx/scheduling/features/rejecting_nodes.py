"""Back-off of nodes after their kubelet rejected a pod."""

from __future__ import annotations

from phalanx.cluster.state import ClusterState
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.session.session import Session


class RejectingNodes(CyclePlugin):
    """Wake-up of the cycle when a node rejects a pod and when its back-off ends.

    The plugin `node-backoff` is the filter.
    """

    name = "rejecting-nodes"

    def __init__(self, state: ClusterState) -> None:
        self._backoff = state.nodes.backoff
        self._next_end: float | None = None
        self._version = self._backoff.version

    def outdated(self) -> bool:
        return self._version != self._backoff.version

    def next_due(self) -> float | None:
        return self._next_end

    def advance(self, now: float) -> None:
        self._version = self._backoff.version

    def published(self, session: Session) -> None:
        self._next_end = self._backoff.next_end(session.now)
