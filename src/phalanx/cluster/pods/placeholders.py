"""Placeholders: future members that a gang's leader creates later, as pods for which resources are reserved."""

from __future__ import annotations

import heapq

import msgspec

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.gang import GangKey
from phalanx.model.pod import Pod


class RoomClaim(msgspec.Struct, frozen=True):
    """Claim of a pod on the room of the placeholder that it replaces: the `placeholder` of a `gang`, its `node`,
    and the time at which the room is released (`until`, 0 if unknown). After a `final` claim the placeholder is not
    expected any more."""

    placeholder: Pod
    gang: GangKey
    node: str
    until: float
    final: bool = False


class Placeholders(dict[str, PodRecord]):
    """Placeholders by uid, with the times at which they release their reserved resources.

    A placeholder is placed with its gang's quorum and never bound. It is nominated until a pod of higher priority
    uses its room, its leader is gone, or its time is over. A pod that can replace it claims its room: the pod is
    nominated instead, and the placeholder is absent while the claim lasts. It returns if the pod is not placed.
    """

    def __init__(self) -> None:
        super().__init__()
        #: Claims by the uid of the pod.
        self.claims: dict[str, RoomClaim] = {}
        #: Uid of the pod by the uid of the claimed placeholder.
        self.claimed: dict[str, str] = {}
        self._ends: list[tuple[float, str]] = []

    def end_at(self, uid: str, when: float) -> None:
        """Set the time at which a placeholder releases its reserved resources; the earliest one set counts."""
        if when:
            heapq.heappush(self._ends, (when, uid))

    @property
    def next_end(self) -> float | None:
        """When the next placeholder releases its reserved resources."""
        while self._ends and not self._exists(self._ends[0][1]):
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def pop_ended(self, now: float) -> list[str]:
        """Remove the past ends; return the uids of the placeholders, each once."""
        ended: dict[str, None] = {}
        while self._ends and self._ends[0][0] <= now:
            _, uid = heapq.heappop(self._ends)
            if self._exists(uid):
                ended[uid] = None
        return list(ended)

    def _exists(self, uid: str) -> bool:
        return uid in self or uid in self.claimed

    # claims

    def observe_claimed(self, pod: Pod) -> bool:
        """Update a claimed placeholder. Return whether the pod is one."""
        uid = self.claimed.get(pod.uid)
        if uid is None:
            return False
        claim = self.claims[uid]
        until = min(claim.until, pod.expires) if claim.until and pod.expires else claim.until or pod.expires
        self.claims[uid] = msgspec.structs.replace(claim, placeholder=pod, until=until)
        self.end_at(pod.uid, pod.expires)
        return True

    def add_claim(self, uid: str, claim: RoomClaim) -> None:
        """Record the claim of a pod."""
        self.claims[uid] = claim
        self.claimed[claim.placeholder.uid] = uid

    def finish_claim(self, uid: str) -> None:
        """Mark the claim on a placeholder that is not expected any more as final."""
        claimant = self.claimed.get(uid)
        if claimant is not None:
            self.claims[claimant] = msgspec.structs.replace(self.claims[claimant], final=True)

    def drop_claim(self, uid: str) -> RoomClaim | None:
        """Remove and return the claim of a pod; None if it has none."""
        claim = self.claims.pop(uid, None)
        if claim is not None:
            del self.claimed[claim.placeholder.uid]
        return claim
