"""The last look before a binding is posted: is the node still one that the plan would choose?"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.cluster.node_table import NO_ROW
from phalanx.cluster.state import ClusterState
from phalanx.execution.binder import Guard
from phalanx.model.decisions import Bind
from phalanx.scheduling.placement.placer import Placer


class Eligibility:
    """The binding endpoint checks nothing about nodes: binding to one that is gone or cordoned succeeds.

    Amounts are not compared again: the plan has charged them.
    """

    def __init__(self, state: ClusterState, placer: Callable[[], Placer]) -> None:
        self._state = state
        self._placer = placer

    def since_now(self) -> Guard:
        """A guard for bindings that were planned a moment ago."""
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
            # A pod that is placed is in its own way, in what is dynamic.
            if self._placer().class_view(record.pod_class).static[row]:
                return None
            return f"node {bind.node} does not take the pod any more (its labels, taints or cordon have changed)"

        return objection
