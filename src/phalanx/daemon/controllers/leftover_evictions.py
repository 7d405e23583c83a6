"""What evictions that were cut off have left: gangs in part, and pods that say they go although they stay."""

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

# How long a broken gang may take to be whole again (its pods come back and find room), and for how long after the
# start broken gangs are looked for; how long a pod may say that it goes while nobody evicts it. In seconds.
_PATIENCE = 5.0
_SPAN = 120.0
_STALE = 5.0
# Nobody gets the room for all that is known, so it is nobody's preemption.
_UNKNOWN = ToldEviction("", EvictionReason.REVOKED)
_INTERRUPTED = "the rest of the pod's gang was evicted before the scheduler was restarted"


class LeftoverEvictions:
    """Ends the eviction of gangs that lost their quorum to it while other members, which say that we evict them,
    run on: a gang moves as one, also over a crash.

    All victims of a decision say so before the first of them is deleted, so nobody is missed. A gang that still has
    its quorum, or has it again within a few seconds, is left alone.

    Who says that we evict it although nobody does any more is told that it stays (`withdraw`): a former process may
    have died between its word and its deed, and a word may not have got through. Else the pod's next failure
    would be excused as a disruption, until Kubernetes' disruption controller takes the condition back.
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
        # Pods (uid) that say that we evict them, and since when nobody has; None where that was not looked at yet.
        self._saying: dict[str, float | None] = {}
        # And why, as they say it.
        self._told: dict[str, ToldEviction] = {}

    def pod_seen(self, pod: PodObject) -> None:
        told = told_eviction(pod)
        if told is not None and told.scheduler in self._state.schedulers:
            self._saying.setdefault(pod.metadata.uid, None)
            self._told[pod.metadata.uid] = told
        elif self._saying:
            self.pod_gone(pod.metadata.uid)

    def pod_gone(self, uid: str) -> None:
        self._saying.pop(uid, None)
        self._told.pop(uid, None)

    def check(self) -> None:
        """To be called about once a second, from the time when everything has been seen."""
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
                told = next((self._told[each.pod.uid] for each in members if each.pod.uid in self._told), _UNKNOWN)
                message = f"{told.why}; {_INTERRUPTED}" if told.why else _INTERRUPTED
                cause, whom = f"remnant {key}", told.preemptor
                self._evict(evict_members(self._state, gang, members, told.reason, message, cause, whom))

    def _withdraw_stale(self, now: float) -> None:
        for uid, since in self._saying.items():
            record = self._state.pods.get(uid)
            if since is None or record is None or record.state not in CAN_LEAVE or self._may_go(record):
                self._saying[uid] = now
            elif now - since >= _STALE:
                self._saying[uid] = now
                self._withdraw(record.pod)

    def _may_go(self, record: PodRecord) -> bool:
        """Whether it is still open what becomes of the pod's gang."""
        return record.gang is not None and record.gang.key in self._broken and not holds_quorum(record.gang)

    def _condemned(self, gang: GangRecord) -> list[PodRecord]:
        """The members that are there and say that we evict them."""
        schedulers, now = self._state.schedulers, self._now()
        return [
            member
            for member in gang.members.values()
            if member.state in CAN_LEAVE and member.pod.condemned in schedulers and member.no_eviction_until <= now
        ]
