"""Promised starts of waiting jobs, and the amount that is idle because it is reserved for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from phalanx.cluster.state import ClusterState
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.simulation.history import JobHistory


class PromiseLog:
    """Log of the scheduler's plan of starts; `plan` is None if the policy has no start reservations.

    `idle` is the amount of `resource` that is idle now on nodes with a reservation for a later start (at most the
    reserved amount), while other jobs wait; `idle_seconds` is its integral over time.
    """

    def __init__(self, state: ClusterState, plan: ReservationPlan | None, resource: str) -> None:
        self.idle = self.idle_seconds = 0
        self._state = state
        self._plan = plan
        self._resource = resource
        self._since = 0
        self._version = -1

    def update(self, history_of: Callable[[UnitKey], JobHistory | None]) -> None:
        """Record first promises and slips after a cycle."""
        plan = self._plan
        if plan is None or plan.version == self._version:
            return
        self._version = plan.version
        for reservation in plan.all():
            history = history_of(reservation.key)
            if history is None or history.start is not None:
                continue
            if history.promised is None:
                history.promised = reservation.promised
            if reservation.slips:
                history.slip = reservation.slips[-1].cause.value

    def measure(self, now: int, waiting: int) -> None:
        """Measure the idle amount after all cycles of a moment; `waiting` is the number of waiting jobs."""
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
        shares = [
            share
            for reservation in plan.all()
            if reservation.start > now
            for share in reservation.window.shares
            if share.reserves(column)
        ]
        if len(shares) == 1:
            (share,) = shares
            kept = zip(nodes.idle[column].take(share.rows).tolist(), share.kept(column).tolist(), strict=True)
            return sum(min(max(idle, 0), reserved) for idle, reserved in kept)
        reserved = np.zeros(nodes.capacity, dtype=np.int64)
        for share in shares:
            reserved[share.rows] += share.kept(column)
        return int(np.minimum(nodes.idle[column].clip(0), reserved).sum()) if shares else 0
