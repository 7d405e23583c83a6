"""Placeholders of expected members: arriving pods claim their room, and unused room is released in time."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.pods.claims import awaits_room, claim_room, return_room, room_for
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey
from phalanx.model.pod import ACTIVE, MemberState
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.session.session import Session


class PlaceholderClaims(CyclePlugin):
    """Claims on placeholders by the pods that replace them, and the expiry of placeholders.

    A pod is nominated for the room of a placeholder from its arrival until it is placed, also while its gang is
    incomplete. The room returns to the placeholder if the pod is gone or its binding fails.
    """

    name = "placeholders"

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._pods = state.pods

    def next_due(self) -> float | None:
        return self._pods.placeholders.next_end

    def advance(self, now: float) -> None:
        """End the time of placeholders, end claims, and let new pods claim room."""
        placeholders = self._pods.placeholders
        if not placeholders and not placeholders.claims:
            return
        self._end_claims()
        self._expire(now)
        for gang in {record.gang: None for record in placeholders.values()}:
            if gang is not None:
                self._claim_room_of(gang)
                self._end_room_without_leader(gang)

    def published(self, session: Session) -> None:
        """Release the room of expected members whose leader this cycle has evicted."""
        for key in {evict.gang: None for evict in session.plan.evictions} if self._pods.placeholders else ():
            gang = self._state.gangs.get(key) if key is not None else None
            if gang is not None:
                self._end_room_without_leader(gang)

    def _end_room_without_leader(self, gang: GangRecord) -> None:
        """Release the room of expected members whose leader terminates: it creates no further pods."""
        if gang.active or any(record.nomination is not None for record in self._real(gang)):
            return
        for record in gang.placeholders.values():
            if record.nomination is not None:
                self._pods.cancel_nomination(record)

    def _real(self, gang: GangRecord) -> Iterator[PodRecord]:
        return (record for record in gang.pending.values() if not record.pod.placeholder)

    def _expire(self, now: float) -> None:
        """Delete expired placeholders.

        If their leader has no node, only their nomination ends: the members are still expected.
        """
        for uid in self._pods.placeholders.pop_ended(now):
            record, claimant = self._pods.get(uid), self._pods.placeholders.claimed.get(uid)
            gang = record.gang if record is not None else None
            if claimant is not None:
                self._release(claimant)
            elif record is None or record.pod.expires or gang is None or gang.active:
                self._pods.delete(uid)
            else:
                self._pods.cancel_nomination(record)

    def _end_claims(self) -> None:
        """End the claims of placed pods, and return the room of pods that have lost their nomination."""
        placeholders = self._pods.placeholders
        for uid, claim in list(placeholders.claims.items()):
            record = self._pods.get(uid)
            if record is not None and record.state in ACTIVE:
                if record.state is not MemberState.ASSUMED:
                    placeholders.drop_claim(uid)
            elif record is None or (claim.node and record.nomination is None):
                if claim.final:
                    placeholders.drop_claim(uid)
                else:
                    return_room(self._pods, self._state.nodes, uid, claim.node)
            elif claim.final and not self._is_active(claim.gang):
                self._release(uid)

    def _release(self, uid: str) -> None:
        """End the claim of a pod and its nomination: the pod waits like all others."""
        self._pods.placeholders.drop_claim(uid)
        record = self._pods.get(uid)
        if record is not None and record.nomination is not None and record.nomination.held:
            self._pods.cancel_nomination(record)

    def _is_active(self, key: GangKey) -> bool:
        gang = self._state.gangs.get(key)
        return gang is not None and gang.active > 0

    def _claim_room_of(self, gang: GangRecord) -> None:
        """Let waiting pods, the oldest first, claim the rooms that a gang holds for them."""
        for record in sorted(self._waiting(gang), key=lambda record: (record.pod.created, record.pod.key)):
            room = room_for(self._state.nodes, gang, record)
            # Without held room, a placeholder stands for a pod that comes after all present ones.
            if room is not None and room.nomination is not None:
                claim_room(self._pods, self._state.nodes, room, record)

    def _waiting(self, gang: GangRecord) -> Iterator[PodRecord]:
        """Yield the pods beyond the minimum of a gang, and those of its later gangs, that have no room yet."""
        spec = gang.spec
        if spec is None:
            return
        missing = max(0, spec.min_member - gang.active)
        own = sorted(gang.pending.values(), key=lambda record: (record.pod.created, record.order))[missing:]
        for members in (own, *map(self._pending, spec.later_gangs)):
            for record in members:
                if awaits_room(record) and record.pod.uid not in self._pods.placeholders.claims:
                    yield record

    def _pending(self, key: GangKey) -> list[PodRecord]:
        gang = self._state.gangs.get(key)
        return list(gang.pending.values()) if gang is not None else []
