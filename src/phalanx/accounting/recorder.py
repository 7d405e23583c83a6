"""Writes what pods and gangs say into the accounts, each thing once, whatever was written before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from phalanx.accounting.batch import Batch
from phalanx.accounting.database import Database, DatabaseError
from phalanx.accounting.facts import GangFact, PodFact
from phalanx.accounting.records import Clock, Lost
from phalanx.accounting.store import Store
from phalanx.model.gang import GangKey

CLUSTER = "cluster"
WATCHED_UNTIL = "watched-until"


class GangChange(msgspec.Struct):
    """What is new about one gang: what declares it now, its pods that have changed, and those that are lost."""

    key: GangKey
    gang: GangFact | None = None
    pods: list[PodFact] = []
    lost: list[Lost] = []


class OpenMember(msgspec.Struct, frozen=True):
    """A pod that has not ended as far as is recorded."""

    uid: str
    key: GangKey


class Recorder:
    """Every call is one transaction, and may be repeated: a pod is known by its uid, and of one that has ended
    nothing changes any more. What is in the database decides, never what a process remembers, so that a crash
    between any two statements leaves nothing behind, and a second recorder does no harm."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def adopt(self, cluster: str) -> int:
        """Until when this cluster was watched, 0 where never. Raises DatabaseError where the accounts are those of
        another cluster: its pods would be taken for lost."""
        with self._database.writing() as connection:
            store = Store(connection)
            known = store.property(CLUSTER)
            if not cluster:
                pass
            elif known is None:
                store.set_property(CLUSTER, cluster)
            elif known != cluster:
                raise DatabaseError(
                    f"{self._database.name} holds the accounts of another cluster (its kube-system has the uid "
                    f"{known}, here it is {cluster}): use a database for each"
                )
            return int(store.property(WATCHED_UNTIL) or 0)

    def open_members(self) -> list[OpenMember]:
        """For whoever has listed the cluster: those that are not there any more are lost."""
        with self._database.writing() as connection:
            return [OpenMember(uid, GangKey(namespace, gang)) for uid, namespace, gang in Store(connection).open()]

    def open_gangs(self) -> list[GangKey]:
        """The gangs of runs that are not over."""
        with self._database.writing() as connection:
            return [GangKey(namespace, gang) for namespace, gang in Store(connection).open_gangs()]

    def record(self, changes: Sequence[GangChange], clock: Clock) -> None:
        with self._database.writing() as connection:
            Batch(Store(connection), changes, clock).write()

    def watched(self, until: int) -> None:
        """Nothing has been missed until then."""
        with self._database.writing() as connection:
            store = Store(connection)
            if until > int(store.property(WATCHED_UNTIL) or 0):
                store.set_property(WATCHED_UNTIL, str(until))

    def there_are(self, uids: Iterable[str]) -> None:
        """All pods and gangs of the cluster: what was forgotten of others need not be kept in mind."""
        with self._database.writing() as connection:
            Store(connection).keep_forgotten(set(uids))
