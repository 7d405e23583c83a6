"""Collections and their stored form."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from phalanx.cluster.node_table import NO_ROW, NodeTable
from phalanx.model.collection_records import StoredCollection
from phalanx.model.gang import GangKey
from phalanx.model.promise_records import StoredShare
from phalanx.scheduling.collecting.collection import ChosenNodes, CollectedPart, Collection
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.stored import kind_of, stored_gangs
from phalanx.scheduling.reservations.window import Part

#: The nodes of larger collections are not stored: they are chosen again after a restart.
_MOST_NODES = 500


def stored_collection(
    key: UnitKey,
    collection: Collection | None,
    failures: int,
    nodes: NodeTable,
    uids: Mapping[GangKey, str],
) -> StoredCollection:
    """Return the stored form of a unit's collection and failures."""
    gangs = stored_gangs(key, uids)
    if collection is None:
        return StoredCollection(gangs, failures=failures)
    shares = [
        StoredShare(
            kind_of(part.part.pod_class.spec),
            {
                nodes.names[row]: int(count)
                for row, count in zip(part.rows.tolist(), part.counts.tolist(), strict=True)
            },
        )
        for part in collection.parts
    ]
    return StoredCollection(
        gangs,
        since=collection.since,
        progress_at=collection.progress_at,
        counted_at=collection.counted_at,
        most=collection.most,
        idle_seconds=collection.idle_seconds,
        shares=shares if len(collection.rows) <= _MOST_NODES else [],
        guesses=collection.guesses,
        failures=failures,
    )


def nodes_of(stored: StoredCollection, parts: tuple[Part, ...], nodes: NodeTable) -> ChosenNodes | None:
    """Return the stored nodes for the unit's present parts; None if the parts or the nodes have changed."""
    by_kind = {share.kind: share.nodes for share in stored.shares}
    chosen: list[CollectedPart] = []
    for part in parts:
        counts = by_kind.get(kind_of(part.pod_class.spec))
        if counts is None or sum(counts.values()) != part.count:
            return None
        rows = [nodes.row(name) for name in counts]
        if NO_ROW in rows:
            return None
        chosen.append(
            CollectedPart(part, np.array(rows, dtype=np.intp), np.array(list(counts.values()), dtype=np.int64))
        )
    return ChosenNodes(tuple(chosen)) if chosen else None
