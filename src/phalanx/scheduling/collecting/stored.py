"""Stored collections: their JSON form, which outlives the process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from phalanx.cluster.node_table import NO_ROW, NodeTable
from phalanx.model.gang import GangKey
from phalanx.model.text.decoding import decode_json
from phalanx.scheduling.collecting.collection import ChosenNodes, CollectedPart, Collection
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.stored import StoredShare, kind_of, stored_gangs
from phalanx.scheduling.reservations.window import Part

VERSION = 1
#: The nodes of larger collections are not stored: they are chosen again after a restart.
_MOST_NODES = 500
_MOST_COLLECTIONS = 200
_ENCODER = msgspec.json.Encoder(order="deterministic")


class StoredCollection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Collection of one unit, or its collections in vain: `failures`; `since` is 0 without a collection.

    `gangs` (namespace, name, uid of the declaring object) identify the unit: a new object of the same name has
    none. `idle_seconds` is the idle resource-time until `counted_at`.
    """

    gangs: list[tuple[str, str, str]]
    since: int = 0
    progress_at: int = 0
    counted_at: int = 0
    most: int = 0
    idle_seconds: int = 0
    shares: list[StoredShare] = []
    guesses: bool = True
    failures: int = 0

    @property
    def key(self) -> UnitKey:
        return tuple(GangKey(namespace, name) for namespace, name, _ in self.gangs)


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


def encode_collections(collections: Iterable[StoredCollection]) -> str:
    """Encode collections; those in progress first, then the units with the most failures, as many as fit."""
    first = sorted(collections, key=lambda entry: (not entry.since, -entry.failures, entry.gangs))
    return _ENCODER.encode({"version": VERSION, "collections": first[:_MOST_COLLECTIONS]}).decode()


def decode_collections(text: str) -> tuple[list[StoredCollection], str]:
    """Return the stored collections, and the fault of the text ("" for none)."""
    if not text:
        return [], ""
    try:
        document = decode_json(text.encode("utf-8", "surrogatepass"))
        if not isinstance(document, dict) or document.get("version") != VERSION:
            return [], f"it is not of version {VERSION} and its collections are forgotten"
        collections = msgspec.convert(document.get("collections"), list[StoredCollection])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        return [], f"its collections are forgotten: {error}"
    return [each for each in collections if _is_sound(each)], ""


def _is_sound(each: StoredCollection) -> bool:
    times = (each.since, each.progress_at, each.counted_at, each.most, each.failures, each.idle_seconds)
    counts = [count for share in each.shares for count in share.nodes.values()]
    return bool(each.gangs) and all(number >= 0 for number in times) and all(count > 0 for count in counts)
