"""Records of promised starts and of decisions on advance reservations: their JSON form outlives the process."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from phalanx.model.gang import GangKey
from phalanx.model.text.decoding import decode_json

P = TypeVar("P")

VERSION = 1
_ENCODER = msgspec.json.Encoder(order="deterministic")


class SlipCause(enum.StrEnum):
    """Cause of a postponement of a promised start."""

    NODE_LOST = "NodeLost"
    NODE_CLOSED = "NodeClosed"
    NODE_SHRUNK = "NodeShrunk"
    OVERRUN = "Overrun"
    STARTED_LATE = "StartedLate"
    DISPLACED = "Displaced"
    LIMIT_CHANGED = "LimitChanged"
    DEMAND_CHANGED = "DemandChanged"
    QUOTA_CHANGED = "QuotaChanged"
    MAINTENANCE = "Maintenance"
    CANNOT_START = "CannotStart"
    NOT_PLACEABLE = "NotPlaceable"
    UNKNOWN = "Unknown"


class Slip(msgspec.Struct, frozen=True):
    """Postponement at `when` from one start to another (0: unknown), with its cause; `by` names the pod or object
    responsible."""

    when: int
    former: int
    start: int
    cause: SlipCause
    by: str = ""


class ToldStart(msgspec.Struct, frozen=True, omit_defaults=True):
    """Published basis of a start at the moment `at`.

    The start rests on the run-time limits of `gangs` gangs and single pods; `endless` pods without a known end are
    on other usable nodes. `expected` and `until` are the times by which 50 and 80 of 100 comparable units have
    started; 0 if unknown.
    """

    at: int
    gangs: int = 0
    endless: int = 0
    expected: int = 0
    until: int = 0


class ObservedStart(msgspec.Struct, frozen=True, array_like=True):
    """Start of a unit of `pods` pods with a forecast wait of `told` and an actual wait of `waited` whole seconds.

    `predicted` are the quantiles (`PERCENTS`) at the time of the forecast; empty where too few starts were known.
    """

    queue: str
    pods: int
    told: int
    waited: int
    predicted: tuple[int, ...] = ()


class StoredShare(msgspec.Struct, frozen=True):
    """Copies of a class (by its hash) on each node."""

    kind: str
    nodes: dict[str, int]


class StoredReservation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stored promise of one unit.

    `gangs` (namespace, name, uid of the declaring object) or `pod` (its uid) identify the unit: a new object of the
    same name has no promise. `titles` are NAMESPACE/NAME of the gangs, `name` (namespace/name) that of the pod,
    `queue` the queue of the unit. These three are for views only and empty in records of older versions.
    """

    start: int
    end: int
    promised: int
    told: int
    made: int
    shares: list[StoredShare]
    gangs: list[tuple[str, str, str]] = []
    pod: str = ""
    slips: list[Slip] = []
    words: ToldStart | None = None
    predicted: tuple[int, ...] = ()
    name: str = ""
    queue: str = ""
    titles: list[str] = []

    @property
    def key(self) -> tuple[GangKey, ...] | str:
        return self.pod or tuple(GangKey(namespace, name) for namespace, name, _ in self.gangs)


class StoredLoss(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stored loss of the promise of a unit without a new one; `gangs` and `pod` as in StoredReservation."""

    slips: list[Slip]
    gangs: list[tuple[str, str, str]] = []
    pod: str = ""

    @property
    def key(self) -> tuple[GangKey, ...] | str:
        return self.pod or tuple(GangKey(namespace, name) for namespace, name, _ in self.gangs)


class StoredNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reserved room on one node."""

    amounts: dict[str, int]
    copies: int = 1


class StoredEnd(msgspec.Struct, frozen=True):
    """Ended occurrence with pods to evict."""

    start: int
    end: int
    nodes: list[str]


class StoredGrant(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stored decision on one advance reservation: valid for the object of this uid while its request is
    unchanged."""

    name: str
    uid: str
    asks: str
    phase: str
    start: int
    end: int
    reason: str = ""
    nodes: dict[str, StoredNode] = {}
    ended: list[StoredEnd] = []
    held_until: int = 0


class StoredStarts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Observed starts of units with a promise, and of units with a forecast only."""

    promised: tuple[ObservedStart, ...] = ()
    forecast: tuple[ObservedStart, ...] = ()


def encode(
    promises: Iterable[StoredReservation],
    grants: Iterable[StoredGrant] = (),
    losses: Iterable[StoredLoss] = (),
) -> str:
    parts = {"grants": list(grants), "losses": list(losses)}
    more = {name: part for name, part in parts.items() if part}
    return _ENCODER.encode({"version": VERSION, "reservations": list(promises), **more}).decode()


def decode_grants(text: str) -> tuple[list[StoredGrant], list[str]]:
    """Return the readable grants of a text, and a sentence for each fault. A text that is no JSON has no grants."""
    return _decode_part(text, "grants", StoredGrant)


def decode_losses(text: str) -> tuple[list[StoredLoss], list[str]]:
    """Return the readable losses of a text, and a sentence for each fault. A text that is no JSON has no losses."""
    return _decode_part(text, "losses", StoredLoss)


def _decode_part(text: str, name: str, kind: type[P]) -> tuple[list[P], list[str]]:
    try:
        document = decode_json(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError:
        return [], []
    entries = document.get(name, []) if isinstance(document, dict) and document.get("version") == VERSION else []
    if not isinstance(entries, list):
        return [], [f"{name} is no list and all are forgotten"]
    readable: list[P] = []
    faults: list[str] = []
    for place, entry in enumerate(entries):
        try:
            readable.append(msgspec.convert(entry, kind))
        except msgspec.ValidationError as error:
            faults.append(f"{name}[{place}] is forgotten: {error}")
    return readable, faults


def decode(text: str) -> tuple[list[StoredReservation], list[str]]:
    """Return the readable promises of a text, and a sentence for each fault."""
    try:
        document = decode_json(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError as error:
        return [], [f"no reservation can be read and the promises are forgotten: {error}"]
    if not isinstance(document, dict) or document.get("version") != VERSION:
        return [], [f"it is not of version {VERSION} and its promises are forgotten"]
    entries = document.get("reservations")
    if not isinstance(entries, list):
        return [], ["reservations is no list and its promises are forgotten"]
    promises: list[StoredReservation] = []
    faults: list[str] = []
    for place, entry in enumerate(entries):
        try:
            promise = msgspec.convert(entry, StoredReservation)
        except msgspec.ValidationError as error:
            faults.append(f"reservations[{place}] is forgotten: {error}")
            continue
        if min(promise.start, promise.promised, promise.told, promise.made) <= 0:
            faults.append(f"reservations[{place}] is forgotten: one of start, promised, told and made is no time")
            continue
        promises.append(promise)
    return promises, faults


def encode_starts(starts: StoredStarts, most: int) -> str:
    """Encode the last starts that fit into `most` bytes."""
    while True:
        text = _ENCODER.encode({"version": VERSION, "starts": starts}).decode()
        if len(text.encode()) <= most:
            return text
        starts = StoredStarts(*(each[len(each) // 2 + 1 :] for each in (starts.promised, starts.forecast)))


def decode_starts(text: str) -> tuple[StoredStarts, str]:
    """Return the readable starts of a text, and its fault ("" for none)."""
    if not text:
        return StoredStarts(), ""
    try:
        document = decode_json(text.encode("utf-8", "surrogatepass"))
        if not isinstance(document, dict) or document.get("version") != VERSION:
            return StoredStarts(), f"it is not of version {VERSION} and its starts are forgotten"
        return msgspec.convert(document.get("starts"), StoredStarts), ""
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        return StoredStarts(), f"its starts are forgotten: {error}"
