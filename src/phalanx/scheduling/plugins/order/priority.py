"""Plugin `priority`: higher priority first, among gangs and among the members of a gang."""

from __future__ import annotations

from phalanx.plugin import GangRecord, Plugin, PodRecord, View


class Priority(Plugin):
    name = "priority"
    separates_bands = True

    def gang_order(self, session: View, gang: GangRecord | PodRecord) -> int:
        return -session.turn_priority(gang)

    def pod_order(self, session: View, pod: PodRecord) -> int:
        return -pod.pod.priority
