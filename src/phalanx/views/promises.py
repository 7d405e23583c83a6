"""Promised starts of gangs and pods for views: one set, with its source, version and time."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from phalanx.model.collection_records import StoredCollection
from phalanx.model.promise_records import StoredReservation, StoredStarts, ToldStart
from phalanx.model.promise_texts import basis_of, postponement
from phalanx.model.reclaim_records import ReclaimedGang
from phalanx.model.text.moments import shown_moment

if TYPE_CHECKING:
    from phalanx.scheduling.queue.unit import QueuedUnit
    from phalanx.scheduling.scheduler import Scheduler
    from phalanx.scheduling.start_reservations.plugin import StartReservations
    from phalanx.scheduling.start_reservations.rehearsal import PromiseMove

#: Seconds by which a promised start can be late (binding, a cycle) before views report it as overdue.
_GRACE = 120


class PromiseSource(enum.StrEnum):
    """Source of promised starts: the live scheduler or its stored record."""

    NONE = ""
    #: The plan of the running scheduler.
    LIVE = "live"
    #: The ConfigMap that the scheduler writes.
    STORED = "stored"


class PromiseOrigin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Source, version and time of promised starts.

    `version` is the number of the plan (live) or the resourceVersion of the ConfigMap (stored). `time` is the
    publication of the plan or the write of the record, RFC 3339, "" if unknown.
    """

    source: PromiseSource = PromiseSource.NONE
    version: str = ""
    time: str = ""


class PromisedStart(msgspec.Struct, omit_defaults=True):
    """Start of a waiting gang or pod: promised by the scheduler, or planned by a dry run.

    `no_later_than` is the promised start ("" without a promise). `promised` is the first published one, at
    `told_at`; `postponements` are the later changes with their causes. `origin` is the source of the promise.

    Half of the gangs and pods with such a promise have started by `expected`, 80 of 100 by `expected_until`.
    `planned` is the start in the plan as of `planned_at`; `basis` names the run time limits behind it. Without an
    expected start, `reason` (a code) and `message` explain why. `moves_to` is the start in a dry run, "" if
    unchanged; `moves_because` is the cause. If a dry run drops the promise, only `moves_because` is set.
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
    """All promised starts of a scheduler in the order of the plan, and the observed starts.

    `warning` is the reason why all or some of them could not be read. `reclaimed` are the gangs with a back-off of
    borrowing and `collections` the gangs that collect room, which the same record has.
    """

    promises: tuple[StoredReservation, ...] = ()
    starts: StoredStarts = StoredStarts()
    origin: PromiseOrigin = PromiseOrigin()
    warning: str = ""
    reclaimed: tuple[ReclaimedGang, ...] = ()
    collections: tuple[StoredCollection, ...] = ()

    @property
    def unread(self) -> bool:
        """Whether the user lacks the right to read the record."""
        return bool(self.warning) and not self.origin.source

    @cached_property
    def _by_gang(self) -> dict[tuple[str, str], tuple[str, StoredReservation]]:
        return {(gang[0], gang[1]): (gang[2], promise) for promise in self.promises for gang in promise.gangs}

    @cached_property
    def _by_owner(self) -> dict[tuple[str, str], StoredReservation]:
        """Promised starts by namespace and owner uid, for gangs named after an owner of pods."""
        promises: dict[tuple[str, str], StoredReservation] = {}
        for (namespace, name), (_, promise) in self._by_gang.items():
            if uid := _owner_uid(name):
                promises.setdefault((namespace, uid), promise)
        return promises

    @cached_property
    def _by_pod(self) -> dict[str, StoredReservation]:
        return {promise.pod: promise for promise in self.promises if promise.pod}

    def of_gang(self, namespace: str, name: str, uid: str) -> StoredReservation | None:
        """Return the promised start of a gang; None if it has none.

        `uid` belongs to the object that declares the gang ("" for none): another object of that name has no
        promise.
        """
        known, promise = self._by_gang.get((namespace, name), ("", None))
        return promise if known == uid else None

    def of_owner(self, namespace: str, uid: str) -> StoredReservation | None:
        """Return the first promised start of the gangs that a job's pods form without a PodGroup."""
        return self._by_owner.get((namespace, uid)) if uid else None

    def of_pod(self, uid: str) -> StoredReservation | None:
        """Return the promised start of a single pod; None if it has none."""
        return self._by_pod.get(uid)

    def of_unit(self, unit: QueuedUnit) -> StoredReservation | None:
        """Return the promised start of a queue entry (gang group, composite or pod); None if one of its gangs is
        another object than the promised one."""
        if unit.pod is not None:
            return self.of_pod(unit.pod.pod.uid)
        promise = None
        for gang in unit.gangs:
            uid = gang.spec.uid if gang.spec is not None else ""
            promise = self.of_gang(gang.key.namespace, gang.key.name, uid)
            if promise is None or promise.key != unit.key:
                return None
        return promise

    def start(self, promise: StoredReservation) -> PromisedStart:
        """Convert a stored promise to the form that views show."""
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
        """Return warnings about all promised starts: they could not be read, or the record is outdated."""
        messages = [self.warning] if self.warning else []
        overdue = sum(promise.told + _GRACE < now for promise in self.promises)
        if overdue and self.origin.source is PromiseSource.STORED:
            written = f"written at {self.origin.time}" if self.origin.time else "of an unknown time"
            starts = "1 promised start has" if overdue == 1 else f"{overdue} promised starts have"
            messages.append(
                f"{starts} passed, and the record of promised starts, {written}, was not updated since; check that "
                "the scheduler runs"
            )
        return messages


def live_promises(feature: StartReservations | None) -> Promises:
    """Return the promised starts in the plan of a running scheduler."""
    if feature is None:
        return Promises(origin=PromiseOrigin(PromiseSource.LIVE))
    version, promises, *_ = feature.promised()
    origin = PromiseOrigin(PromiseSource.LIVE, str(version), shown_moment(feature.published_at))
    return Promises(tuple(promises), feature.observed_starts(), origin)


def promises_of_scheduler(scheduler: Scheduler) -> Promises:
    """Return the promised starts in the plan of a running scheduler, whether its policy promises starts or not."""
    from phalanx.scheduling.start_reservations.plugin import StartReservations

    return live_promises(scheduler.features.get(StartReservations))


def with_move(start: PromisedStart, promise: StoredReservation, moves: Iterable[PromiseMove]) -> PromisedStart:
    """Return a promised start with the time to which a dry run moves it, if so."""
    for move in moves:
        if move.promise.key == promise.key:
            return msgspec.structs.replace(start, moves_to=shown_moment(move.to), moves_because=move.cause)
    return start


def _owner_uid(name: str) -> str:
    """Return the owner uid in the name of a gang that is named after an owner of pods (KIND:OWNER:UID/PART)."""
    parts = name.split(":")
    return parts[2].partition("/")[0] if len(parts) > 2 else ""
