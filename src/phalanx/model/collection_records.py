"""Records of collections of room: their JSON form outlives the process."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.model.gang import GangKey
from phalanx.model.promise_records import StoredShare
from phalanx.model.text.decoding import decode_json

VERSION = 1
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
    def key(self) -> tuple[GangKey, ...]:
        return tuple(GangKey(namespace, name) for namespace, name, _ in self.gangs)


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
