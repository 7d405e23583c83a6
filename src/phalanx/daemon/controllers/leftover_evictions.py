"""What a former process has left undone: gangs that it was evicting when it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.daemon.controllers.gang_eviction import evict_members
from phalanx.model.decisions import Evict, EvictionReason
from phalanx.model.gang import GangKey
from phalanx.model.pod import CAN_LEAVE
from phalanx.scheduling.preemption.rules.min_available import holds_quorum

# How long a broken gang may take to be whole again (its pods come back and find room), and for how long after the
# start anything is looked for at all; in seconds.
_PATIENCE = 5.0
_SPAN = 120.0
_INTERRUPTED = "the rest of the pod's gang was evicted before the scheduler was restarted"


class LeftoverEvictions:
    """Ends the eviction of gangs that lost their quorum to it while other members, which say that we evict them,
    run on: a gang moves as one, also over a crash.

    All victims of a decision say so before the first of them is deleted, so nobody is missed. A gang that still has
    its quorum, or has it again within a few seconds, is left alone.
    """

    def __init__(
        self, state: ClusterState, evict: Callable[[Sequence[Evict]], None], now: Callable[[], float]
    ) -> None:
        self._state = state
        self._evict = evict
        self._now = now
        self._until: float | None = None
        self._broken: dict[GangKey, float] = {}

    def check(self) -> None:
        """To be called about once a second, from the time when everything has been seen."""
        now = self._now()
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
                reason, cause = EvictionReason.PREEMPTED, f"remnant {key}"
                self._evict(evict_members(self._state, gang, members, reason, _INTERRUPTED, cause))

    def _condemned(self, gang: GangRecord) -> list[PodRecord]:
        """The members that are there and say that we evict them."""
        schedulers, now = self._state.schedulers, self._now()
        return [
            member
            for member in gang.members.values()
            if member.state in CAN_LEAVE and member.pod.condemned in schedulers and member.no_eviction_until <= now
        ]
