"""`cdp`: cooldown protection (Volcano's plugin of that name)."""

from __future__ import annotations

from phalanx.model.pod import MemberState, bound_at
from phalanx.model.text.duration import format_duration
from phalanx.plugin import EvictVeto, Plugin, PodRecord, View


class Cdp(Plugin):
    """A veto for a running pod, for as long after it got its node as its `volcano.sh/cooldown-time` says."""

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
