"""Claims of pods on the room of the placeholders that they replace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from phalanx.cluster.node_table import NO_ROW, NodeTable
from phalanx.cluster.pods.nominations import Nomination
from phalanx.cluster.pods.placeholders import Placeholders, RoomClaim
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.resource_space import IntArray
from phalanx.model.gang import GangKey
from phalanx.model.pod import ACTIVE, MemberState, Pod


class Pods(Protocol):
    """Pods by uid, with the changes that a claim makes."""

    placeholders: Placeholders

    def __getitem__(self, uid: str, /) -> PodRecord: ...
    def get(self, uid: str, /) -> PodRecord | None: ...
    def observe(self, pod: Pod) -> None: ...
    def delete(self, uid: str) -> None: ...
    def nominate(self, record: PodRecord, row: int, nomination: Nomination) -> None: ...


def awaits_room(record: PodRecord) -> bool:
    """Return whether a pod can replace a placeholder: it waits without a nomination."""
    pod = record.pod
    waits = record.state is MemberState.PENDING and record.nomination is None
    return waits and not (pod.placeholder or pod.gated or pod.problem)


def room_for(nodes: NodeTable, gang: GangRecord, record: PodRecord) -> PodRecord | None:
    """Return the first placeholder of a gang that a pod can replace; None if there is none.

    The pod must fit on the node of the placeholder if it uses its room too, or the placeholder waits with its
    leader.
    """
    for room in sorted(gang.placeholders.values(), key=lambda placeholder: placeholder.order):
        if room.nomination is None:
            if not gang.active:
                return room
            continue
        row = nodes.row(room.nominated_node)
        if row != NO_ROW and has_room(nodes, row, record, room.footprint.usage):
            return room
    return None


def claim_room(pods: Pods, nodes: NodeTable, room: PodRecord, record: PodRecord) -> None:
    """Nominate a pod for the room of a placeholder, which is absent from then on.

    Without a nomination of the placeholder, the pod replaces it and gets no room.
    """
    gang, nomination, node = room.gang, room.nomination, room.nominated_node
    assert gang is not None
    until = (nomination.until if nomination is not None else 0) or room.pod.expires
    pods.placeholders.add_claim(record.pod.uid, RoomClaim(room.pod, gang.key, node, until))
    pods.delete(room.pod.uid)
    if nomination is not None:
        pods.nominate(record, nodes.row(node), Nomination(until=until, held=True))


def claim_at_arrival(pods: Pods, nodes: NodeTable, gangs: Mapping[GangKey, GangRecord], record: PodRecord) -> None:
    """Let a new pod claim the room that is held for it, if there is any."""
    gang = record.gang
    if gang is not None and gang.spec is not None and gang.spec.expected_by is not None:
        gang = gangs.get(gang.spec.expected_by)
    elif gang is not None and gang.spec is not None and len(gang.members) <= gang.spec.min_member:
        return
    room = room_for(nodes, gang, record) if gang is not None else None
    if room is not None:
        claim_room(pods, nodes, room, record)


def return_room(pods: Pods, nodes: NodeTable, uid: str, node: str) -> None:
    """End the claim of a pod that does not use it; restore the placeholder, on `node` if that has room for it."""
    claim = pods.placeholders.drop_claim(uid)
    assert claim is not None
    placeholder = claim.placeholder
    pods.observe(msgspec.structs.replace(placeholder, nominated_node=""))
    record, row = pods[placeholder.uid], nodes.row(node)
    if row != NO_ROW and has_room(nodes, row, record):
        pods.nominate(record, row, Nomination(until=claim.until))
    pods.placeholders.end_at(placeholder.uid, claim.until)


def end_former_claim(pods: Pods, nodes: NodeTable, uid: str) -> None:
    """End the claim of a deleted pod whose uid is added again, so that its room is not lost with a new claim."""
    claim = pods.placeholders.claims[uid]
    if claim.final:
        pods.placeholders.drop_claim(uid)
    else:
        return_room(pods, nodes, uid, claim.node)


def claimed_instead(pods: Pods, gang: GangRecord | None) -> str | None:
    """Return the uid of a placed pod that has claimed a placeholder of the gang; None if there is none.

    The removal of another placeholder of the gang counts for this pod, then.
    """
    for uid, claim in pods.placeholders.claims.items() if gang is not None else ():
        if gang is not None and claim.gang == gang.key and not claim.final:
            record = pods.get(uid)
            if record is not None and record.state in ACTIVE:
                return uid
    return None


def has_room(nodes: NodeTable, row: int, record: PodRecord, freed: IntArray | None = None) -> bool:
    """Return whether a pod fits on a row by its amounts, with `freed` amounts beside the idle ones."""
    usage, idle = record.footprint.usage, nodes.idle[:, row]
    room = idle if freed is None else idle + freed
    return not (room < usage)[usage > 0].any()
