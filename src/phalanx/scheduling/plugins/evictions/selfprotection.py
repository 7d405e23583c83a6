"""Plugin `selfprotection`: owners' protection of pods and gangs. The plugin is active in every policy."""

from __future__ import annotations

from phalanx.plugin import Arguments, EvictVeto, Plugin, PodRecord, View

_FIRM = EvictVeto("is not preemptible and within its quota's min", own=True)
_MARKED = EvictVeto("is marked as not preemptable", own=True)


class SelfProtectionPlugin(Plugin):
    """Veto against evicting pods and gangs that their owners mark as not preemptable.

    It counts only as far as the pod's accounts allow, which is decided for each preemptor
    (`preemption/rules/self_protection.py`).
    """

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
