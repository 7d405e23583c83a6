"""Advance reservations of a cluster as events, and their effect on each pod."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from phalanx.dialects.api_groups import KOORDINATOR, PHALANX
from phalanx.dialects.core import PodObject
from phalanx.dialects.enricher import Changes, PodEnricher, no_changes
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.pods.known_pods import KnownPod
from phalanx.dialects.reader import Document, ObjectReader, is_whole
from phalanx.dialects.reservations.koordinator import (
    koordinator_name,
    read_koordinator_reservation,
    required_names,
)
from phalanx.dialects.reservations.reader import INVALID, ReadReservation, TemplateReader, read_reservation
from phalanx.dialects.warnings import ObjectRef, ObjectWarning, ObjectWarnings
from phalanx.model.advance_reservation import RESERVATION_ANNOTATION, AdvanceReservation
from phalanx.model.events import AdvanceReservationRemoved, AdvanceReservationUpdated
from phalanx.model.gang import Gang, GroupRef
from phalanx.model.pod import Pod, PodClass, ReservationUse

RESERVATIONS = WantedKind(PHALANX, "reservations", "Reservation", ("v1alpha1",))
KOORDINATOR_RESERVATIONS = WantedKind(KOORDINATOR, "reservations", "Reservation", ("v1alpha1",))

# Limit for pairs of a class and its counterpart with a reservation; a cache with more entries is cleared.
_CACHE_SIZE = 10_000


class SeenReservation(msgspec.Struct, frozen=True):
    """Last seen state of a Reservation object; the status only serves to find changed fields."""

    ref: GroupRef
    generation: int
    status: Mapping[str, Any]


class AdvanceReservations(PodEnricher):
    """Processes reservations. `pods` are the known pods, `template` returns the class of a template's pods, and
    `schedulers` are our names.

    `seen` maps the planner's name of each reservation to its object.
    """

    kinds = (RESERVATIONS, KOORDINATOR_RESERVATIONS)

    def __init__(
        self,
        warnings: ObjectWarnings,
        pods: Mapping[str, KnownPod],
        template: TemplateReader,
        schedulers: frozenset[str],
    ) -> None:
        self._object_warnings = warnings
        self._pods = pods
        self._template = template
        self._schedulers = schedulers
        self._read: dict[str, ReadReservation] = {}
        self.seen: dict[str, SeenReservation] = {}
        # Reservation names that pods require, by uid.
        self._required_names: dict[str, tuple[str, ...]] = {}
        self._twins: dict[tuple[PodClass, ReservationUse], PodClass] = {}

    # -- pods --------------------------------------------------------------------------------------------------

    def concerns(self, pod: PodObject, pod_class: PodClass) -> bool:
        annotations = pod.metadata.annotations
        return bool(annotations.get(RESERVATION_ANNOTATION) or required_names(annotations))

    def pod(self, pod: PodObject, spec: Pod) -> Changes:
        annotations = pod.metadata.annotations
        if not annotations and not self._required_names:
            return no_changes()
        own = annotations.get(RESERVATION_ANNOTATION, "")
        names = (own,) if own else required_names(annotations)
        if names == self._required_names.get(spec.uid, ()):
            return no_changes()
        if names:
            self._required_names[spec.uid] = names
        else:
            del self._required_names[spec.uid]
        return [], {spec.uid}

    def pod_gone(self, spec: Pod) -> Changes:
        self._required_names.pop(spec.uid, None)
        return no_changes()

    @property
    def idle(self) -> bool:
        return not self._read and not self._required_names

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        return self.with_use(spec, gang, self._required_names.get(spec.uid, ()))

    def with_use(self, spec: Pod, gang: Gang | None, required: tuple[str, ...]) -> Pod:
        """Return the pod with the reservations that it can use; `required` are the names that it states itself."""
        if not self._read and not required:
            return spec
        use = self._use(spec, gang, required)
        if use is None:
            return spec
        twin = self._twins.get((spec.pod_class, use))
        if twin is None:
            if len(self._twins) >= _CACHE_SIZE:
                self._twins.clear()
            twin = self._twins[spec.pod_class, use] = msgspec.structs.replace(spec.pod_class, reservation=use)
        return msgspec.structs.replace(spec, pod_class=twin)

    def _use(self, spec: Pod, gang: Gang | None, required: tuple[str, ...]) -> ReservationUse | None:
        queue = gang.queue if gang is not None else spec.queue
        if required:
            unknown = [name for name in required if name not in self._read]
            usable = tuple(name for name in required if name not in unknown and self._allows(name, spec, queue))
            if usable:
                return ReservationUse(usable, True)
            fault = (
                "which it asks for, does not exist"
                if unknown
                else "which it asks for, is not for it: see its owners"
            )
            return ReservationUse(required, True, f"Reservation {(unknown or required)[0]}, {fault}")
        magnetic_names = tuple(
            name
            for name, read in sorted(self._read.items())
            if (read.magnetic or read.spec.gang is not None) and self._allows(name, spec, queue)
        )
        return ReservationUse(magnetic_names) if magnetic_names else None

    def _allows(self, name: str, spec: Pod, queue: str) -> bool:
        read = self._read[name]
        if read.spec.gang is not None and (spec.namespace, spec.gang) == read.spec.gang:
            return True
        known = self._pods.get(spec.uid)
        owner_names = known.owners if known is not None else ""
        return any(owner.allows(spec, queue, owner_names) for owner in read.owners)

    # -- objects -----------------------------------------------------------------------------------------------

    def updated(self, kind: ServedKind, document: Document) -> Changes:
        reader = ObjectReader(kind, document)
        generation = reader.metadata.get("generation")
        if kind.group == KOORDINATOR:
            read = read_koordinator_reservation(kind, document, self._template, self._schedulers)
            if read is None:
                return self.removed(kind, "", reader.ref.name)
        else:
            read = read_reservation(kind, document, self._template)
        self.seen[read.spec.name] = SeenReservation(
            reader.ref, generation if is_whole(generation) else 0, reader.status
        )
        return self._changes_of(kind, read)

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> Changes:
        problem = f"it cannot be read: {error}"
        return self._changes_of(kind, ReadReservation(AdvanceReservation(_name(kind, name), uid, problem=problem)))

    def removed(self, kind: ServedKind, namespace: str, name: str) -> Changes:
        return self._forget([_name(kind, name)])

    def unserved(self, kind: ServedKind) -> Changes:
        return self._forget([name for name, seen in sorted(self.seen.items()) if seen.ref.group == kind.group])

    def _changes_of(self, kind: ServedKind, read: ReadReservation) -> Changes:
        spec = read.spec
        last = self._read.get(spec.name)
        self._read[spec.name] = read
        if spec.problem and (last is None or last.spec.problem != spec.problem):
            about = ObjectRef(kind.api_version, kind.kind, "", self._object_name(spec.name), spec.uid)
            self._object_warnings.add(
                ObjectWarning(about, "Warning", INVALID, spec.problem),
                partial(self._is_current, spec.name, spec.problem),
            )
        touched = (
            self._affected_pods(last) | self._affected_pods(read) if _rules(last) != _rules(read) else set[str]()
        )
        return [AdvanceReservationUpdated(spec)], touched

    def _object_name(self, name: str) -> str:
        seen = self.seen.get(name)
        return seen.ref.name if seen is not None else name

    def _forget(self, names: list[str]) -> Changes:
        events: list[Any] = []
        touched: set[str] = set()
        for name in names:
            self.seen.pop(name, None)
            last = self._read.pop(name, None)
            if last is not None:
                events.append(AdvanceReservationRemoved(name))
                touched |= self._affected_pods(last)
        return events, touched

    def _affected_pods(self, read: ReadReservation | None) -> set[str]:
        """Return the uids of pods whose permission to use reserved nodes this reservation can change."""
        if read is None:
            return set()
        name = read.spec.name
        uids = {uid for uid, names in self._required_names.items() if name in names}
        if read.magnetic or read.spec.gang is not None:
            # The pod's queue and gang are checked when it is enriched.
            uids |= {uid for uid, known in self._pods.items() if not known.pod.finished}
        return uids

    def _is_current(self, name: str, problem: str) -> bool:
        read = self._read.get(name)
        return read is not None and read.spec.problem == problem


def _name(kind: ServedKind, name: str) -> str:
    return koordinator_name(name) if kind.group == KOORDINATOR else name


def _rules(read: ReadReservation | None) -> object:
    return read and (read.owners, read.magnetic, read.spec.gang)
