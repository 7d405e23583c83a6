"""Admissions of groups that use nothing: the amounts that they hold lapse after a time."""

from __future__ import annotations

from phalanx.cluster.state import ClusterState
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import plan_of


class AdmissionLapse(CyclePlugin):
    """Expiry of admissions: groups without a placed member or a reserved start release their minResources."""

    name = "admission-lapse"

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._inqueue = state.gangs.inqueue

    def next_due(self) -> float | None:
        return self._inqueue.next_lapse

    def begin(self, session: Session) -> None:
        due = self._inqueue.next_lapse
        if due is None or due > session.now:
            return
        plan = plan_of(session)
        lapsed = (
            self._inqueue.lapse(session.now, plan.is_promised)
            if plan is not None
            else (self._inqueue.lapse(session.now))
        )
        if lapsed:
            self._state.room_opened()

    def published(self, session: Session) -> None:
        """End the reservations of groups that have lost their start, as the next process would."""
        plan = plan_of(session)
        if plan is not None and self._inqueue.end_exemptions(plan.is_promised):
            self._state.room_opened()
