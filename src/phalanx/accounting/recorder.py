"""Recorder: writes the state of pods and gangs into the usage database, each change once, even if it is
repeated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from phalanx.accounting.batch import Batch
from phalanx.accounting.database import Database, DatabaseError
from phalanx.accounting.facts import GangFact, PodFact
from phalanx.accounting.notices import SINCE, NoticeWriter
from phalanx.accounting.promise_watch import LatePromise
from phalanx.accounting.records import Clock, Lost
from phalanx.accounting.retention import prune
from phalanx.accounting.store import Store
from phalanx.model.gang import GangKey
from phalanx.notifications.events import NoticeEvent
from phalanx.notifications.settings import Settings

CLUSTER = "cluster"
WATCHED_UNTIL = "watched-until"


class GangChange(msgspec.Struct):
    """Change of one gang for the recorder: its present declaration, its changed pods, and pods whose deletion was
    not observed."""

    key: GangKey
    gang: GangFact | None = None
    pods: list[PodFact] = []
    lost: list[Lost] = []


class OpenMember(msgspec.Struct, frozen=True):
    """Recorded pod without a recorded end."""

    uid: str
    key: GangKey


class Recorder:
    """Writer of the usage database. Every call is one transaction and can be repeated.

    A pod is identified by its uid, and an ended pod never changes. Only the database decides, not the memory of the
    process, so a crash between any two statements is harmless, and so is a second recorder. With `settings` the
    notices of an event are stored in the transaction that records it.
    """

    def __init__(self, database: Database, settings: Settings | None = None) -> None:
        self._database = database
        self._settings = settings

    def adopt(self, cluster: str) -> int:
        """Return the time until which the recorder watched this cluster, 0 if never.

        Raises DatabaseError if the accounts belong to another cluster: its pods would count as lost.
        """
        with self._database.writing() as connection:
            store = Store(connection)
            known = store.property(CLUSTER)
            if not cluster:
                pass
            elif known is None:
                store.set_property(CLUSTER, cluster)
            elif known != cluster:
                raise DatabaseError(
                    f"{self._database.name} has the accounts of another cluster (kube-system uid {known}, "
                    f"this cluster has {cluster}); use one database per cluster"
                )
            return int(store.property(WATCHED_UNTIL) or 0)

    def open_members(self) -> list[OpenMember]:
        """Return the pods without a recorded end; after a list of the cluster the absent ones count as lost."""
        with self._database.writing() as connection:
            return [
                OpenMember(uid, GangKey(namespace, gang))
                for uid, namespace, gang in Store(connection).open_members()
            ]

    def open_gangs(self) -> list[GangKey]:
        """Return the gangs of runs that have not ended."""
        with self._database.writing() as connection:
            return [GangKey(namespace, gang) for namespace, gang in Store(connection).open_gangs()]

    def record(self, changes: Sequence[GangChange], clock: Clock) -> None:
        with self._database.writing() as connection:
            Batch(Store(connection), changes, clock, self._settings).write()

    def enable_notices(self, now: int) -> None:
        """Record that notifications are enabled since `now`; events before the first such time are not sent."""
        with self._database.writing() as connection:
            store = Store(connection)
            if store.property(SINCE) is None:
                store.set_property(SINCE, str(now))

    def note_late(self, late: Sequence[LatePromise], now: int) -> None:
        """Store notices for promised starts that are not met; each promise once."""
        if self._settings is None or not late:
            return
        with self._database.writing() as connection:
            store = Store(connection)
            writer = NoticeWriter(store, self._settings, now)
            of_pods = store.runs_of_pods(entry.key.name[1:] for entry in late if entry.key.name.startswith("/"))
            gangs = [(entry.key.namespace, entry.key.name) for entry in late if not entry.key.name.startswith("/")]
            rows = store.runs(of_pods.values(), gangs)
            by_gang = {(run.namespace, run.gang): run for run in rows.values() if run.gang and run.started is None}
            for entry in late:
                run = by_gang.get((entry.key.namespace, entry.key.name)) or rows.get(
                    of_pods.get(entry.key.name[1:], -1)
                )
                if run is not None and run.started is None and run.ended is None:
                    writer.add(run, NoticeEvent.PROMISE_BROKEN, now, str(entry.promised), entry.cause)

    def record_watched_until(self, until: int) -> None:
        """Record that no change before `until` was missed by the watch."""
        with self._database.writing() as connection:
            store = Store(connection)
            if until > int(store.property(WATCHED_UNTIL) or 0):
                store.set_property(WATCHED_UNTIL, str(until))

    def prune(self, before: int, now: int) -> None:
        """Remove runs that ended before `before`, and the sums of earlier days."""
        with self._database.writing() as connection:
            prune(connection, before, before, now)

    def prune_forgotten(self, uids: Iterable[str]) -> None:
        """Delete the marks of erased pods and gangs whose uids are not among `uids`, those of all existing pods and
        gangs."""
        with self._database.writing() as connection:
            Store(connection).keep_forgotten(set(uids))
