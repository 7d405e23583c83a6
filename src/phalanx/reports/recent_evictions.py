"""Who was evicted a moment ago, as far as a snapshot shows it: what eviction rates count."""

from __future__ import annotations

from phalanx.cluster.state import ClusterState
from phalanx.scheduling.session.eviction_log import EvictionLog


def log_recent_evictions(state: ClusterState, log: EvictionLog, now: float) -> None:
    """Notes the pods that are on their way out because we said so. Those that are gone are not known."""
    state.ledger.refresh_sums()
    told = [
        (min(float(record.pod.leaves - record.pod.grace), now), uid)
        for uid, record in state.pods.terminating.items()
        if record.pod.terminating and record.pod.leaves and record.pod.condemned in state.schedulers
    ]
    for when, uid in sorted(told):
        log.evicted(state.pods.terminating[uid], when)
