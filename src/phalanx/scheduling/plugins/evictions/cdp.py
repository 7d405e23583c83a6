"""Plugin `cdp` of Volcano: cooldown protection."""

from __future__ import annotations

from phalanx.model.pod import MemberState, bound_at
from phalanx.model.text.duration import format_duration
from phalanx.plugin import EvictVeto, Plugin, PodRecord, View


class Cdp(Plugin):
    """Veto against evicting a running pod until its `volcano.sh/cooldown-time` after its binding has passed."""

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
            f"is protected for {format_duration(pod.cooldown)} after its binding", float(until), own=True
        )
