"""Admissions of groups without pods: the amounts that they hold lapse after a time."""

from __future__ import annotations

from phalanx.cluster.state import ClusterState
from phalanx.scheduling.session.cycle_plugin import CyclePlugin


class AdmissionLapse(CyclePlugin):
    """Expiry of admissions: unused minResources of admitted groups are released."""

    name = "admission-lapse"

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._admitted = state.gangs.inqueue

    def next_due(self) -> float | None:
        return self._admitted.next_lapse

    def advance(self, now: float) -> None:
        if self._admitted.lapse(now):
            self._state.room_opened()
