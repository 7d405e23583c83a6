"""Decoding of the Reservation of phalanx.dev."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import msgspec

from phalanx.dialects.core import PodObject
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.lenient import decode_leniently
from phalanx.dialects.reader import Document, ObjectReader, is_whole
from phalanx.dialects.reservations.owners import ReservationOwner, read_owners
from phalanx.dialects.window_fields import read_length, read_moment, read_nodes, read_recurrence, read_word
from phalanx.model.advance_reservation import NO_END, AdvanceReservation, AtEnd, Replace, ReservedNodes
from phalanx.model.pod import PodClass

INVALID = "InvalidReservation"

_MOST_COPIES = 100_000
#: Fields of the request: a grant is valid for exactly these values.
_ASKED = ("template", "count", "gang", "nodes", "start", "notBefore", "end", "duration", "recurrence", "overlap")
_ENCODER = msgspec.json.Encoder(order="deterministic")

TemplateReader = Callable[[PodObject], PodClass]


class ReservationReader(ObjectReader):
    code = INVALID


class ReadReservation(msgspec.Struct, frozen=True):
    """Decoded Reservation object: the reservation and its owners. A `magnetic` one also serves pods that do not
    name it."""

    spec: AdvanceReservation
    owners: tuple[ReservationOwner, ...] = ()
    magnetic: bool = False


def read_reservation(resource: ServedKind, document: Document, template: TemplateReader) -> ReadReservation:
    """Decode a Reservation of phalanx.dev. An unreadable field becomes its problem, and it is not granted."""
    reader = ReservationReader(resource, document)
    owners = read_owners(reader)
    gang, nodes = _gang(reader), _nodes(reader)
    pod_class = read_template(reader, template)
    if sum(source is not None for source in (gang, nodes, pod_class)) != 1 and not reader.problem:
        reader.refuse("spec", sorted(reader.spec), "write exactly one of template, gang and nodes")
    if not owners and gang is None:
        reader.refuse("spec.owners", reader.spec.get("owners"), "write its owners, such as [{namespaces: [a]}]")
    start, end, duration = _times(reader)
    recurrence = read_recurrence(reader, start, end) if not reader.problem and end < NO_END else None
    if recurrence is None and reader.spec.get("recurrence") is not None and not reader.problem:
        reader.refuse("spec.recurrence", reader.spec["recurrence"], "write start with it, and end or duration")
    spec = AdvanceReservation(
        name=reader.ref.name,
        uid=reader.ref.uid,
        template=pod_class,
        count=_count(reader, "count", reader.spec.get("count"), 1),
        gang=gang,
        nodes=nodes,
        start=start,
        end=end,
        duration=duration,
        flexible_start=reader.spec.get("start") is None,
        recurrence=recurrence,
        queue=reader.text("queue"),
        flex=_flag(reader, "flex"),
        ignore_running=_flag(reader, "ignoreRunning"),
        overlap=_flag(reader, "overlap"),
        replace=read_word(reader, "replace", Replace, Replace.LOST),
        on_end=read_word(reader, "onEnd", AtEnd, AtEnd.EVICT),
        unused_after=reader.number("unusedAfter") or 0,
        asks=asked(reader, _ASKED),
    )
    problem = reader.problem.message if reader.problem else ""
    return ReadReservation(msgspec.structs.replace(spec, problem=problem), owners, _flag(reader, "magnetic"))


def asked(reader: ObjectReader, fields: tuple[str, ...]) -> str:
    """Return a digest of the fields by which a Reservation requests resources, to detect changes."""
    stated = {name: reader.spec[name] for name in fields if reader.spec.get(name) is not None}
    return hashlib.blake2b(_ENCODER.encode(stated), digest_size=8).hexdigest()


def read_template(reader: ObjectReader, template: TemplateReader) -> PodClass | None:
    """Return the class of the pods that a Reservation's spec.template creates."""
    stated = reader.spec.get("template")
    if stated is None:
        return None
    metadata = stated.get("metadata") if isinstance(stated, Mapping) else None
    spec = stated.get("spec") if isinstance(stated, Mapping) else None
    if not isinstance(spec, Mapping):
        reader.refuse("spec.template", stated, "write a template of pods: {spec: {containers: [...]}}")
        return None
    named = {**(metadata if isinstance(metadata, Mapping) else {}), "name": reader.ref.name, "namespace": ""}
    pod, faults = decode_leniently(PodObject, {"metadata": named, "spec": spec})
    if faults:
        reader.refuse(f"spec.template.{faults[0].path}", faults[0].message, "correct the template")
        return None
    return template(pod)


def _gang(reader: ObjectReader) -> tuple[str, str] | None:
    stated = reader.spec.get("gang")
    if stated is None:
        return None
    names = [stated.get(key) for key in ("namespace", "name")] if isinstance(stated, Mapping) else []
    if len(names) != 2 or not all(isinstance(name, str) and name for name in names):
        reader.refuse("spec.gang", stated, "write {namespace: a, name: b}, those of its PodGroup")
        return None
    return str(names[0]), str(names[1])


def _nodes(reader: ObjectReader) -> ReservedNodes | None:
    stated = reader.spec.get("nodes")
    if stated is None:
        return None
    names, selector = read_nodes(reader)
    if names and selector is not None:
        reader.refuse("spec.nodes", stated, "write either names, or a selector")
        return None
    count = stated.get("count") if isinstance(stated, Mapping) else None
    return ReservedNodes(names, selector, _count(reader, "nodes.count", count, 0) if selector is not None else 0)


def _count(reader: ObjectReader, field: str, stated: object, default: int) -> int:
    if stated is None:
        return default
    if is_whole(stated) and 1 <= stated <= _MOST_COPIES:
        return stated
    reader.refuse(f"spec.{field}", stated, f"write a whole number from 1 to {_MOST_COPIES}")
    return default


def _flag(reader: ObjectReader, field: str) -> bool:
    stated = reader.spec.get(field)
    if stated is not None and not isinstance(stated, bool):
        reader.refuse(f"spec.{field}", stated, "write true or false")
    return stated is True


def _times(reader: ObjectReader) -> tuple[int, int, int]:
    """Return (start, end, duration) of a Reservation in seconds; without a stated start, `start` is the earliest
    possible one."""
    spec = reader.spec
    if spec.get("start") is not None and spec.get("notBefore") is not None:
        reader.refuse("spec.notBefore", spec["notBefore"], "write either start, or notBefore")
    field = "start" if spec.get("start") is not None else "notBefore"
    start = (read_moment(reader, field) or 0) if spec.get(field) is not None else reader.created
    duration = read_length(reader, "duration", 0)
    last = read_moment(reader, "end") if spec.get("end") is not None else None
    if field == "start":
        if (last is None) == (not duration):
            reader.refuse("spec.end", spec.get("end"), "write either end, or duration")
            return start, NO_END, 0
        last = last if last is not None else start + duration
    elif not duration:
        reader.refuse("spec.duration", spec.get("duration"), "write it with notBefore, such as 4h")
    if last is not None and last <= start:
        reader.refuse("spec.end", spec.get("end"), "write one after the start")
    return start, last if last is not None else NO_END, duration if field == "notBefore" else 0
