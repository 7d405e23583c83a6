"""`selfprotection`: pods and gangs whose owners say that they must not be evicted. No policy names it."""

from __future__ import annotations

from phalanx.plugin import Arguments, EvictVeto, Plugin, PodRecord, View

_FIRM = EvictVeto("is not preemptible, and holds no more than its quota's min", own=True)
_MARKED = EvictVeto("is marked as not preemptable", own=True)


class SelfProtectionPlugin(Plugin):
    """What owners say counts only as far as their accounts let it: that is decided where somebody asks for the
    room (`preemption/rules/self_protection.py`)."""

    name = "selfprotection"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def evict_veto(self, session: View, record: PodRecord) -> EvictVeto | None:
        pod, gang = record.pod, record.gang
        if pod.firm:
            return _FIRM
        if not pod.preemptable:
            return _MARKED
        if gang is not None and gang.spec is not None and not gang.spec.preemptable:
            return EvictVeto(f"belongs to gang {gang.title}, which is marked as not preemptable", own=True)
        return None
