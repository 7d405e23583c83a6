"""Last check of a node before a binding is posted."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.cluster.node_table import NO_ROW
from phalanx.cluster.state import ClusterState
from phalanx.execution.binder import Guard
from phalanx.model.decisions import Bind
from phalanx.scheduling.placement.placer import Placer


class Eligibility:
    """Check of a binding's node at the time of posting.

    The binding endpoint checks nothing about nodes: binding to a deleted or cordoned node succeeds. Resource
    amounts are not compared again: the plan has charged them.
    """

    def __init__(self, state: ClusterState, placer: Callable[[], Placer]) -> None:
        self._state = state
        self._placer = placer

    def since_now(self) -> Guard:
        """Return a check for bindings that have just been planned: it returns an objection if the node has changed
        since now."""
        nodes = self._state.nodes
        planned_at = nodes.relabelled.end

        def objection(bind: Bind) -> str | None:
            row = nodes.row(bind.node)
            if row == NO_ROW:
                return f"node {bind.node} is gone"
            record = self._state.pods.get(bind.uid)
            if record is None:
                return "the pod is gone"
            if nodes.relabelled.end == planned_at:
                return None
            # The pod is already charged to the node: dynamic filters would count it as a conflict with itself.
            if self._placer().class_view(record.pod_class).static[row]:
                return None
            return f"node {bind.node} no longer fits the pod (its labels, taints or cordon have changed)"

        return objection
