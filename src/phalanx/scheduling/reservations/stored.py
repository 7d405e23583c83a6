"""Stored promises: their JSON form, which outlives the process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from phalanx.cluster.node_table import NO_ROW, NodeTable
from phalanx.model.gang import GangKey
from phalanx.model.pod import PodClass
from phalanx.model.promise_records import StoredReservation, StoredShare
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.reservation import Reservation
from phalanx.scheduling.reservations.window import Part, Share

_ENCODER = msgspec.json.Encoder(order="deterministic")


def kind_of(pod_class: PodClass) -> str:
    """Return a hash of the class that is equal in all processes."""
    return hashlib.blake2b(_ENCODER.encode(pod_class), digest_size=8).hexdigest()


def stored_gangs(key: UnitKey, uids: Mapping[GangKey, str]) -> list[tuple[str, str, str]]:
    """Return (namespace, name, uid of the declaring object) of the gangs of a unit."""
    return [] if isinstance(key, str) else [(gang.namespace, gang.name, uids.get(gang, "")) for gang in key]


def stored(
    reservation: Reservation, nodes: NodeTable, uids: Mapping[GangKey, str], titles: Mapping[GangKey, str] = {}
) -> StoredReservation:
    """Return the stored form of a promise.

    `uids` are the uids of the objects that declare the gangs; `titles` the names of gangs that do not follow from
    their keys.
    """
    window, key = reservation.window, reservation.key
    return StoredReservation(
        start=window.start,
        end=window.end,
        promised=reservation.promised,
        told=reservation.told,
        made=reservation.made,
        shares=[
            StoredShare(
                kind_of(share.pod_class.spec),
                {
                    nodes.names[row]: int(count)
                    for row, count in zip(share.rows.tolist(), share.counts.tolist(), strict=True)
                },
            )
            for share in window.shares
        ],
        gangs=stored_gangs(key, uids),
        pod=key if isinstance(key, str) else "",
        slips=list(reservation.slips),
        words=reservation.words,
        predicted=reservation.predicted,
        name=reservation.name.removeprefix("pod ") if isinstance(key, str) else "",
        queue=reservation.queue,
        titles=[titles.get(gang, str(gang)) for gang in key] if titles and not isinstance(key, str) else [],
    )


def shares_of(kept: StoredReservation, parts: Sequence[Part], nodes: NodeTable) -> tuple[Share, ...] | None:
    """Return the stored shares for the unit's present parts; None if the parts or nodes have changed."""
    left, shares = list(kept.shares), list[Share]()
    for part in parts:
        kind = kind_of(part.pod_class.spec)
        # Parts of one class are charged to different accounts.
        found = (share for share in left if share.kind == kind and sum(share.nodes.values()) == part.count)
        share = next(found, None)
        if share is None:
            return None
        left.remove(share)
        counts = share.nodes
        rows = [nodes.row(name) for name in counts]
        if NO_ROW in rows:
            return None
        shares.append(
            Share(part.pod_class, np.array(rows, dtype=np.intp), np.array(list(counts.values()), dtype=np.int64))
        )
    return tuple(shares)
