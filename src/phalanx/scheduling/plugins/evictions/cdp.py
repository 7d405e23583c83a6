"""`cdp`: cooldown protection (Volcano's plugin of that name)."""

from __future__ import annotations

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.duration import format_duration
from phalanx.model.pod import MemberState, bound_at
from phalanx.scheduling.framework.plugin import Plugin
from phalanx.scheduling.framework.points import EvictVeto
from phalanx.scheduling.framework.view import View


class Cdp(Plugin):
    """Spares a running pod for as long after it got its node as its `volcano.sh/cooldown-time` says."""

    name = "cdp"
    honours_owners = True

    def evict_veto(self, session: View, record: PodRecord) -> EvictVeto | None:
        pod = record.pod
        if not pod.cooldown or record.state is not MemberState.RUNNING:
            return None
        until = bound_at(pod) + pod.cooldown
        if until <= session.now:
            return None
        return EvictVeto(
            f"is protected for {format_duration(pod.cooldown)} after it got its node", float(until), own=True
        )
