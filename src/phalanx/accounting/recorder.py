"""Recorder: writes the state of pods and gangs into the usage database, each change once, even if it is
repeated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from phalanx.accounting.batch import Batch
from phalanx.accounting.database import Database, DatabaseError
from phalanx.accounting.facts import GangFact, PodFact
from phalanx.accounting.records import Clock, Lost
from phalanx.accounting.retention import prune
from phalanx.accounting.store import Store
from phalanx.model.gang import GangKey

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
    process, so a crash between any two statements is harmless, and so is a second recorder.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

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
            Batch(Store(connection), changes, clock).write()

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
