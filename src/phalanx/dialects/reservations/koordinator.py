"""Koordinator's Reservation: room for one pod from now on, as far as it is supported."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.reader import Document
from phalanx.dialects.reservations.owners import read_owners
from phalanx.dialects.reservations.reader import (
    ReadReservation,
    ReservationReader,
    TemplateReader,
    asked,
    read_template,
)
from phalanx.dialects.times import parse_duration
from phalanx.dialects.window_fields import read_moment
from phalanx.model.advance_reservation import NO_END, AdvanceReservation, AtEnd
from phalanx.model.text.decoding import decode_json

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"

_PREFIX = "koordinator/"
_ONE_DAY = 86_400
_ASKED = ("template", "ttl", "expires")


def koordinator_name(name: str) -> str:
    """Return the name of a Koordinator Reservation among all reservations: names of our own objects contain no
    slash."""
    return f"{_PREFIX}{name}"


def read_koordinator_reservation(
    resource: ServedKind, document: Document, template: TemplateReader, schedulers: frozenset[str]
) -> ReadReservation | None:
    """Read a reservation; None if another scheduler serves it, by the schedulerName of its template.

    Pods need not name it, as with Koordinator. preAllocation and Restricted are not supported.
    """
    reader = ReservationReader(resource, document)
    stated = reader.spec.get("template")
    pod_spec = stated.get("spec") if isinstance(stated, Mapping) else None
    scheduler = pod_spec.get("schedulerName") if isinstance(pod_spec, Mapping) else None
    if scheduler not in schedulers:
        return None
    if reader.spec.get("preAllocation") is True:
        reader.refuse("spec.preAllocation", True, "remove it: room of running pods cannot be reserved")
    if reader.spec.get("taints"):
        reader.refuse("spec.taints", reader.spec["taints"], "remove them: taints of reservations are not supported")
    owners = read_owners(reader)
    pod_class = read_template(reader, template)
    if pod_class is None and not reader.problem:
        reader.refuse("spec.template", stated, "write a template of pods")
    spec = AdvanceReservation(
        name=koordinator_name(reader.ref.name),
        uid=reader.ref.uid,
        kind="Koordinator's Reservation",
        template=pod_class,
        start=reader.created,
        end=_end(reader),
        once=reader.spec.get("allocateOnce") is not False,
        closed=reader.spec.get("unschedulable") is True,
        on_end=AtEnd.KEEP,
        asks=asked(reader, _ASKED),
    )
    problem = reader.problem.message if reader.problem else ""
    return ReadReservation(msgspec.structs.replace(spec, problem=problem), owners, magnetic=True)


def _end(reader: ReservationReader) -> int:
    if reader.spec.get("expires") is not None:
        return read_moment(reader, "expires") or NO_END
    stated = reader.spec.get("ttl")
    if stated is None:
        return reader.created + _ONE_DAY
    try:
        seconds = parse_duration(stated) if isinstance(stated, str) else -1
    except ValueError:
        seconds = -1
    if seconds < 0:
        reader.refuse("spec.ttl", stated, "write a duration such as 24h, or 0s for no end")
        return NO_END
    return reader.created + seconds if seconds else NO_END


def required_names(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the reservations that a pod requires by Koordinator's annotation."""
    text = annotations.get(AFFINITY)
    if not text:
        return ()
    try:
        stated = decode_json(text.encode())
    except msgspec.DecodeError:
        return (koordinator_name(f"of its annotation {AFFINITY}, which is no JSON"),)
    name = stated.get("name") if isinstance(stated, Mapping) else None
    return (koordinator_name(name),) if isinstance(name, str) and name else ()
