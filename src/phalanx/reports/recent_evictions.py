"""Recent evictions in a snapshot of the cluster, which count against eviction rates."""

from __future__ import annotations

from phalanx.cluster.state import ClusterState
from phalanx.scheduling.session.eviction_log import EvictionLog


def log_recent_evictions(state: ClusterState, log: EvictionLog, now: float) -> None:
    """Record the terminating pods that this scheduler evicted. Deleted pods are unknown."""
    state.ledger.refresh_sums()
    evictions = [
        (min(float(record.pod.leaves - record.pod.grace), now), uid)
        for uid, record in state.pods.terminating.items()
        if record.pod.terminating and record.pod.leaves and record.pod.condemned in state.schedulers
    ]
    for when, uid in sorted(evictions):
        log.evicted(state.pods.terminating[uid], when)
