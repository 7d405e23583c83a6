"""`conformance`: what keeps the cluster alive is never evicted (Volcano's plugin of that name)."""

from __future__ import annotations

from phalanx.plugin import EvictVeto, Plugin, PodRecord, View

_SYSTEM = "kube-system"
_CRITICAL = EvictVeto("is critical to the cluster")
_IN_SYSTEM = EvictVeto(f"is in the namespace {_SYSTEM}")


class Conformance(Plugin):
    """A veto for critical pods (by priority class or priority, or as their kubelet says) and kube-system."""

    name = "conformance"

    def evict_veto(self, session: View, record: PodRecord) -> EvictVeto | None:
        pod = record.pod
        if pod.critical:
            return _CRITICAL
        return _IN_SYSTEM if pod.namespace == _SYSTEM else None
