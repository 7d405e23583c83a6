"""Placeholders of expected members: their room is released when the members are not created in time."""

from __future__ import annotations

from phalanx.cluster.state import ClusterState
from phalanx.scheduling.session.cycle_plugin import CyclePlugin


class PlaceholderExpiry(CyclePlugin):
    """Expiry of placeholders."""

    name = "placeholders"

    def __init__(self, state: ClusterState) -> None:
        self._pods = state.pods

    def next_due(self) -> float | None:
        return self._pods.placeholders.next_end

    def advance(self, now: float) -> None:
        """Delete expired placeholders.

        If their leader has no node, only their nomination ends: the members are still expected.
        """
        if not self._pods.placeholders:
            return
        for record in self._pods.placeholders.pop_ended(now):
            gang = record.gang
            if record.pod.expires or gang is None or gang.active:
                self._pods.delete(record.pod.uid)
            else:
                self._pods.cancel_nomination(record)
