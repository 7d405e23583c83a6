"""Plugin `conformance` of Volcano: pods that the cluster depends on are never evicted."""

from __future__ import annotations

from phalanx.plugin import EvictVeto, Plugin, PodRecord, View

_SYSTEM = "kube-system"
_CRITICAL = EvictVeto("is critical to the cluster")
_IN_SYSTEM = EvictVeto(f"is in namespace {_SYSTEM}")


class Conformance(Plugin):
    """Veto against evicting critical pods (by priority class, priority, or the kubelet's rules) and pods in
    kube-system."""

    name = "conformance"

    def evict_veto(self, session: View, record: PodRecord) -> EvictVeto | None:
        pod = record.pod
        if pod.critical:
            return _CRITICAL
        return _IN_SYSTEM if pod.namespace == _SYSTEM else None
