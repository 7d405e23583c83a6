"""Eviction of a gang's members together, without a preemptor."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Evict, EvictionReason


def evict_members(
    state: ClusterState,
    gang: GangRecord,
    members: Iterable[PodRecord],
    reason: EvictionReason,
    message: str,
    cause: str,
    now: float,
    preemptor: str = "",
) -> list[Evict]:
    """Mark the members of a gang as evicted at `now`; return the evictions for the executor."""
    evictions = []
    for member in members:
        state.pods.mark_evicting(member, cause, int(now))
        evictions.append(Evict.of(member.pod, reason, message, cause=cause, gang=gang.key, preemptor=preemptor))
    return evictions
