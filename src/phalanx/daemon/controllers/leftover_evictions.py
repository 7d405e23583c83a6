"""Evictions that a crash interrupted: partly evicted gangs, and pods with a stale DisruptionTarget condition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.daemon.controllers.gang_eviction import evict_members
from phalanx.dialects.core import PodObject
from phalanx.dialects.pods.evictability import told_eviction
from phalanx.model.decisions import Evict, EvictionReason
from phalanx.model.eviction_condition import ToldEviction
from phalanx.model.gang import GangKey
from phalanx.model.pod import CAN_LEAVE, Pod
from phalanx.scheduling.preemption.rules.min_available import holds_quorum

# Seconds that a broken gang has to regain its quorum, the time after the start in which broken gangs are searched,
# and the seconds after which a condition without an eviction is stale.
_PATIENCE = 5.0
_SPAN = 120.0
_STALE = 5.0
# Eviction with an unknown preemptor: it does not count as a preemption.
_UNKNOWN = ToldEviction("", EvictionReason.REVOKED)
_INTERRUPTED = "the rest of the pod's gang was evicted before the scheduler was restarted"


class LeftoverEvictions:
    """Completion of evictions that a crash interrupted.

    A gang that lost its quorum to an eviction while other members with our condition run on is evicted completely:
    gangs are evicted as one, also across a crash. All victims of a decision get the condition before the first one
    is deleted, so no victim is missed. A gang with a quorum, also one regained within seconds, is not evicted.

    A pod with our condition that is not evicted loses the condition (`withdraw`): an earlier process died between
    condition and eviction, or a withdrawal failed. Otherwise the pod's next failure would count as a disruption
    until Kubernetes' disruption controller removes the condition.
    """

    def __init__(
        self,
        state: ClusterState,
        evict: Callable[[Sequence[Evict]], None],
        withdraw: Callable[[Pod], None],
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self._evict = evict
        self._withdraw = withdraw
        self._now = now
        self._until: float | None = None
        self._broken: dict[GangKey, float] = {}
        # Time since when a pod (uid) with our condition is not being evicted; None before the first check.
        self._marked: dict[str, float | None] = {}
        # Content of the condition, by uid.
        self._evictions: dict[str, ToldEviction] = {}

    def pod_seen(self, pod: PodObject) -> None:
        eviction = told_eviction(pod) if pod.status.conditions else None
        if eviction is not None and eviction.scheduler in self._state.schedulers:
            self._marked.setdefault(pod.metadata.uid, None)
            self._evictions[pod.metadata.uid] = eviction
        elif self._marked:
            self.pod_gone(pod.metadata.uid)

    def pod_gone(self, uid: str) -> None:
        self._marked.pop(uid, None)
        self._evictions.pop(uid, None)

    def check(self) -> None:
        """Check partly evicted gangs and stale conditions; call it about once a second after the first list."""
        now = self._now()
        self._end_broken_gangs(now)
        self._withdraw_stale(now)

    def _end_broken_gangs(self, now: float) -> None:
        if self._until is None:
            self._until = now + _SPAN
            self._broken = {gang.key: now for gang in self._state.gangs.values() if self._condemned(gang)}
        if now > self._until:
            self._broken.clear()
        for key, since in list(self._broken.items()):
            gang = self._state.gangs.get(key)
            members = self._condemned(gang) if gang is not None else []
            if gang is None or not members:
                del self._broken[key]
            elif holds_quorum(gang):
                self._broken[key] = now
            elif now - since >= _PATIENCE:
                del self._broken[key]
                known = (self._evictions.get(member.pod.uid) for member in members)
                eviction = next(filter(None, known), _UNKNOWN)
                message = f"{eviction.why}; {_INTERRUPTED}" if eviction.why else _INTERRUPTED
                cause, preemptor = f"remnant {key}", eviction.preemptor
                evictions = evict_members(
                    self._state, gang, members, eviction.reason, message, cause, now, preemptor
                )
                self._evict(evictions)

    def _withdraw_stale(self, now: float) -> None:
        for uid, since in self._marked.items():
            record = self._state.pods.get(uid)
            if since is None or record is None or record.state not in CAN_LEAVE or self._is_undecided(record):
                self._marked[uid] = now
            elif now - since >= _STALE:
                self._marked[uid] = now
                self._withdraw(record.pod)

    def _is_undecided(self, record: PodRecord) -> bool:
        """Return whether a decision about the eviction of the pod's gang is still open."""
        return record.gang is not None and record.gang.key in self._broken and not holds_quorum(record.gang)

    def _condemned(self, gang: GangRecord) -> list[PodRecord]:
        """Return the active members of a gang with the scheduler's eviction condition."""
        schedulers, now = self._state.schedulers, self._now()
        return [
            member
            for member in gang.members.values()
            if member.state in CAN_LEAVE and member.pod.condemned in schedulers and member.no_eviction_until <= now
        ]
