"""ConfigMap with the promised starts of gangs (of start reservations): the scheduler writes it, commands and pages
read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.model.collection_records import decode_collections
from phalanx.model.promise_records import StoredReservation, decode, decode_starts
from phalanx.model.reclaim_records import decode_reclaims
from phalanx.model.text.decoding import decode_json
from phalanx.model.text.moments import shown_moment
from phalanx.views.promises import PromiseOrigin, Promises, PromiseSource

NAME = "reservations"
DATA_KEY = "reservations.json"
STARTS_KEY = "starts.json"
RECLAIMS_KEY = "reclaims.json"
COLLECTIONS_KEY = "collections.json"
WRITTEN_KEY = "written.json"


class Written(msgspec.Struct, frozen=True):
    """Time at which the scheduler wrote the promised starts, in seconds since the epoch, and the number of its
    plan."""

    time: int
    plan: int
    version: int = 1


def promises_of(document: Mapping[str, Any]) -> Promises:
    """Return the promised starts that a ConfigMap contains."""
    metadata, raw_data = document.get("metadata") or {}, document.get("data")
    data = raw_data if isinstance(raw_data, dict) else {}
    promises, faults = list[StoredReservation](), list[str]()
    if DATA_KEY in data:
        promises, faults = decode(str(data[DATA_KEY]))
    starts, fault = decode_starts(str(data.get(STARTS_KEY, "")))
    origin = PromiseOrigin(
        PromiseSource.STORED, str(metadata.get("resourceVersion", "")), _written(str(data.get(WRITTEN_KEY, "")))
    )
    reclaimed, fault_of_reclaims = decode_reclaims(str(data.get(RECLAIMS_KEY, "")))
    collections, fault_of_collections = decode_collections(str(data.get(COLLECTIONS_KEY, "")))
    problems = "; ".join(filter(None, [*faults, fault, fault_of_reclaims, fault_of_collections]))
    place = f"{metadata.get('namespace')}/{metadata.get('name')}"
    warning = f"configmap {place}, promised starts: {problems}" if problems else ""
    return Promises(tuple(promises), starts, origin, warning, tuple(reclaimed), tuple(collections))


def encode_written(now: float, plan: int) -> str:
    return msgspec.json.encode(Written(int(now), plan), order="deterministic").decode()


def _written(text: str) -> str:
    """Return the time at which the promised starts were written, RFC 3339; "" if unknown, as in records of older
    versions."""
    try:
        written = msgspec.convert(decode_json(text.encode("utf-8", "surrogatepass")), Written) if text else None
    except (msgspec.DecodeError, msgspec.ValidationError):
        written = None
    return shown_moment(written.time) if written is not None else ""
