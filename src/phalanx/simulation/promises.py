"""What waiting jobs were told about their starts, and how much stands idle because room is kept for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from phalanx.cluster.state import ClusterState
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.simulation.history import JobHistory


class PromiseLog:
    """Follows the scheduler's plan of starts; `plan` is None where the policy keeps none.

    `idle` is how much of the `resource` stands idle now on nodes where it is kept for a start to come (at most what
    is kept there), while others wait; `idle_seconds` the sum of it over time.
    """

    def __init__(self, state: ClusterState, plan: ReservationPlan | None, resource: str) -> None:
        self.idle = self.idle_seconds = 0
        self._state = state
        self._plan = plan
        self._resource = resource
        self._since = 0
        self._version = -1

    def update(self, history_of: Callable[[UnitKey], JobHistory | None]) -> None:
        """After a cycle: who was promised a start for the first time, and whose start has slipped."""
        plan = self._plan
        if plan is None or plan.version == self._version:
            return
        self._version = plan.version
        for each in plan.all():
            history = history_of(each.key)
            if history is None or history.start is not None:
                continue
            if history.promised is None:
                history.promised = each.promised
            if each.slips:
                history.slip = each.slips[-1].cause.value

    def measure(self, now: int, waiting: int) -> None:
        """After all cycles of a moment; `waiting` is how many jobs wait."""
        plan = self._plan
        if plan is None:
            return
        self.idle_seconds += self.idle * (now - self._since)
        self._since = now
        self.idle = self._idle(plan, now) if len(plan) and waiting > len(plan) else 0

    def _idle(self, plan: ReservationPlan, now: int) -> int:
        nodes, column = self._state.nodes, self._state.space.find(self._resource)
        if column is None:
            return 0
        kept = np.zeros(nodes.capacity, dtype=np.int64)
        for each in plan.all():
            for share in each.window.shares if each.start > now else ():
                usage = share.pod_class.footprint.usage
                if column < len(usage):
                    np.add.at(kept, share.rows, share.counts * usage[column])
        return int(np.minimum(nodes.idle[column].clip(0), kept).sum())
