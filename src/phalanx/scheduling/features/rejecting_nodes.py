"""Back-off of nodes after their kubelet rejected a pod."""

from __future__ import annotations

from phalanx.cluster.node_table import NO_ROW
from phalanx.cluster.state import ClusterState
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.session.session import Session


class RejectingNodes(CyclePlugin):
    """Back-offs as time passes: they close nodes when a pod is rejected, and open them when they end.

    The plugin `node-backoff` is the filter. Only the rows of the nodes concerned are filtered again.
    """

    name = "rejecting-nodes"

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._backoff = state.nodes.backoff
        self._next_end: float | None = None
        self._version = self._backoff.version

    def outdated(self) -> bool:
        return self._version != self._backoff.version

    def next_due(self) -> float | None:
        return self._next_end

    def advance(self, now: float) -> None:
        self._version = self._backoff.version
        changed, opened = self._backoff.advance(now)
        nodes = self._state.nodes
        rows = [row for row in sorted(map(nodes.row, changed)) if row != NO_ROW]
        for row in rows:
            nodes.relabelled.note(row)
            nodes.changes.note(row)
        self._state.recheck_nominations(rows)
        if opened:
            self._state.room_opened()

    def published(self, session: Session) -> None:
        self._next_end = self._backoff.next_end(session.now)
