"""Promised starts as every view shows them: one set, with its source, version and time."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from functools import cached_property

import msgspec

from phalanx.model.text.moments import shown_moment
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.reservations.reservation import ToldStart
from phalanx.scheduling.reservations.stored import StoredReservation, StoredStarts
from phalanx.scheduling.reservations.telling import basis_of, postponement
from phalanx.scheduling.start_reservations.plugin import StartReservations
from phalanx.scheduling.start_reservations.rehearsal import PromiseMove

#: A start that is promised may be late by so many seconds (binding, a cycle) before a view calls it overdue.
_GRACE = 120


class PromiseSource(enum.StrEnum):
    """Where promised starts come from."""

    NONE = ""
    #: The plan of the running scheduler.
    LIVE = "live"
    #: The ConfigMap that the scheduler writes.
    STORED = "stored"


class PromiseOrigin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Source, version and time of promised starts.

    `version` is the number of the plan (live) or the resourceVersion of the ConfigMap (stored). `time` is when the
    plan was published or the record was written, RFC 3339, "" where that is not known.
    """

    source: PromiseSource = PromiseSource.NONE
    version: str = ""
    time: str = ""


class PromisedStart(msgspec.Struct, omit_defaults=True):
    """Start of a waiting unit: promised, or planned by a dry run.

    `no_later_than` is the promised start ("" without a promise), `promised` the one that was published first,
    at `told_at`; `postponements` say when and why it has moved back. `origin` says where the promise comes from.

    `expected` is when half of the units with such a promise have started, `expected_until` when 80 of 100 have.
    `planned` is where the plan has the start, promised or not, as of `planned_at`; `basis` says by whose limits.
    Where nothing is expected, `reason` (a code) and `message` say why. `moves_to` is where a dry run moves the
    promised start, "" where it stays; `moves_because` is the cause. A dry run that gives the promise up has the
    cause alone.
    """

    no_later_than: str = ""
    promised: str = ""
    told_at: str = ""
    postponements: list[str] = []
    expected: str = ""
    expected_until: str = ""
    planned: str = ""
    planned_at: str = ""
    basis: str = ""
    reason: str = ""
    message: str = ""
    origin: PromiseOrigin | None = None
    moves_to: str = ""
    moves_because: str = ""


class Promises(msgspec.Struct, frozen=True, dict=True):
    """All promised starts of a scheduler, in the order of the plan, and the starts that it observed.

    `warning` says why they could not be read, or which part of them.
    """

    promises: tuple[StoredReservation, ...] = ()
    starts: StoredStarts = StoredStarts()
    origin: PromiseOrigin = PromiseOrigin()
    warning: str = ""

    @cached_property
    def _by_gang(self) -> dict[tuple[str, str], tuple[str, StoredReservation]]:
        return {(each[0], each[1]): (each[2], promise) for promise in self.promises for each in promise.gangs}

    @cached_property
    def _by_owner(self) -> dict[tuple[str, str], StoredReservation]:
        """By namespace and uid of the owner, of gangs that an owner of pods names."""
        found: dict[tuple[str, str], StoredReservation] = {}
        for (namespace, name), (_, promise) in self._by_gang.items():
            if uid := _owner_uid(name):
                found.setdefault((namespace, uid), promise)
        return found

    @cached_property
    def _by_pod(self) -> dict[str, StoredReservation]:
        return {promise.pod: promise for promise in self.promises if promise.pod}

    def of_gang(self, namespace: str, name: str, uid: str) -> StoredReservation | None:
        """Return the promise of a gang. `uid` is that of the object that declares it ("" for none): another object
        of the same name has no promise."""
        known, promise = self._by_gang.get((namespace, name), ("", None))
        return promise if known == uid else None

    def of_owner(self, namespace: str, uid: str) -> StoredReservation | None:
        """Return the first promise of the gangs of a job's pods that no PodGroup declares."""
        return self._by_owner.get((namespace, uid)) if uid else None

    def of_pod(self, uid: str) -> StoredReservation | None:
        """Return the promise of a pod on its own."""
        return self._by_pod.get(uid)

    def of_unit(self, unit: QueuedUnit) -> StoredReservation | None:
        """Return the promise of a unit; None where one of its gangs is another object than the promised one."""
        if unit.pod is not None:
            return self.of_pod(unit.pod.pod.uid)
        found = None
        for gang in unit.gangs:
            uid = gang.spec.uid if gang.spec is not None else ""
            found = self.of_gang(gang.key.namespace, gang.key.name, uid)
            if found is None or found.key != unit.key:
                return None
        return found

    def start(self, promise: StoredReservation) -> PromisedStart:
        """Return a promise as views show it."""
        words = promise.words or ToldStart(promise.made)
        return PromisedStart(
            no_later_than=shown_moment(promise.told),
            promised=shown_moment(promise.promised),
            told_at=shown_moment(promise.made),
            postponements=[postponement(slip) for slip in promise.slips],
            expected=shown_moment(words.expected),
            expected_until=shown_moment(words.until),
            planned=shown_moment(promise.start),
            planned_at=shown_moment(words.at),
            basis=basis_of(words.gangs, words.endless),
            origin=self.origin,
        )

    def warnings(self, now: float) -> list[str]:
        """Return what a user should know of the whole: that it was not read, or that the record is old."""
        found = [self.warning] if self.warning else []
        overdue = sum(promise.told + _GRACE < now for promise in self.promises)
        if overdue and self.origin.source is PromiseSource.STORED:
            written = f"written at {self.origin.time}" if self.origin.time else "of an unknown time"
            starts = "1 promised start has" if overdue == 1 else f"{overdue} promised starts have"
            found.append(
                f"{starts} passed, and the record of promised starts, {written}, was not updated since; check that "
                "the scheduler runs"
            )
        return found


def live_promises(feature: StartReservations | None) -> Promises:
    """Return the promised starts of the plan of a running scheduler."""
    if feature is None:
        return Promises(origin=PromiseOrigin(PromiseSource.LIVE))
    version, promises, _ = feature.promised()
    origin = PromiseOrigin(PromiseSource.LIVE, str(version), shown_moment(feature.published_at))
    return Promises(tuple(promises), feature.observed_starts(), origin)


def with_move(start: PromisedStart, promise: StoredReservation, moves: Iterable[PromiseMove]) -> PromisedStart:
    """Return the start of a promise with where a dry run moves it."""
    for move in moves:
        if move.promise.key == promise.key:
            return msgspec.structs.replace(start, moves_to=shown_moment(move.to), moves_because=move.cause)
    return start


def _owner_uid(name: str) -> str:
    """Return the uid in the name of a gang that an owner of pods names (KIND:OWNER:UID/PART)."""
    parts = name.split(":")
    return parts[2].partition("/")[0] if len(parts) > 2 else ""
