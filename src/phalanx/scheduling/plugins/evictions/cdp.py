"""`cdp`: cooldown protection (Volcano's plugin of that name)."""

from __future__ import annotations

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.duration import format_duration
from phalanx.model.pod import MemberState
from phalanx.scheduling.framework.plugin import Plugin, Spared
from phalanx.scheduling.framework.view import View
from phalanx.scheduling.plugins.evictions.protection import bound_at


class Cdp(Plugin):
    """Spares a running pod for as long after it got its node as its `volcano.sh/cooldown-time` says."""

    name = "cdp"

    def spares(self, session: View, record: PodRecord) -> Spared | None:
        pod = record.pod
        if not pod.cooldown or record.state is not MemberState.RUNNING:
            return None
        until = bound_at(pod) + pod.cooldown
        if until <= session.now:
            return None
        return Spared(
            f"is protected for {format_duration(pod.cooldown)} after it got its node", float(until), own=True
        )
