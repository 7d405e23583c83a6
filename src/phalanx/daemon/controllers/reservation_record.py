"""Promised starts, advance reservations, reclaimed gangs and collections, stored in a ConfigMap across restarts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from phalanx.daemon.controllers.own_config_map import LeftAlone, OwnConfigMap
from phalanx.execution.record_writes import RecordWrites
from phalanx.execution.writes import WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import RetryPolicy
from phalanx.model.collection_records import StoredCollection, decode_collections, encode_collections
from phalanx.model.promise_records import (
    StoredGrant,
    StoredLoss,
    StoredReservation,
    StoredStarts,
    decode,
    decode_grants,
    decode_losses,
    decode_starts,
    encode,
    encode_starts,
)
from phalanx.model.reclaim_records import ReclaimedGang, decode_reclaims, encode_reclaims
from phalanx.scheduling.features.borrow_backoff import BorrowBackoff
from phalanx.views.promise_record import (
    COLLECTIONS_KEY,
    DATA_KEY,
    NAME,
    RECLAIMS_KEY,
    STARTS_KEY,
    WRITTEN_KEY,
    encode_written,
)

log = logging.getLogger(__name__)

# A ConfigMap holds 1 MB.
MOST_BYTES = 700_000
_MOST_BYTES_OF_STARTS = 200_000
_MOST_RECLAIMED_GANGS = 500
# A loss needs up to 1 kB.
MOST_LOSSES = 100


class StoredCollections(Protocol):
    """Collections of a scheduler; `version` changes with each change that is stored."""

    version: int

    def export(self) -> list[StoredCollection]: ...

    def restore(self, collections: Iterable[StoredCollection]) -> None: ...


class ReservationRecord:
    """Storage of promised starts, granted advance reservations and collections in a ConfigMap.

    They are loaded once before the first plan and written after changes, one write at a time. Only the scheduler
    has the right to write the object, so its content cannot come from a tenant.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        namespace: str,
        promises: Callable[
            [], tuple[int, Sequence[StoredReservation], Sequence[StoredGrant], Sequence[StoredLoss]]
        ],
        starts: Callable[[], StoredStarts],
        backoff: BorrowBackoff | None = None,
        collecting: StoredCollections | None = None,
        *,
        prefix: str = "phalanx",
        retry: RetryPolicy | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._object = OwnConfigMap(client, namespace, f"{prefix}-{NAME}", "starts are promised again", retry)
        self._promises = promises
        self._starts = starts
        self._backoff = backoff if backoff is not None else BorrowBackoff()
        self._now = now
        self._collecting = collecting
        # Versions of the plan, of the back-off and of the collections.
        self._written = (0, 0, 0)
        self._data: dict[str, str] = {}
        self._writes = RecordWrites(pool, self._write)
        # Stored grants by name.
        self._grants: dict[str, StoredGrant] = {}

    def holds(self, name: str, uid: str, phase: str, start: int) -> bool:
        """Return whether the state of an advance reservation is stored; its status is not published before."""
        stored = self._grants.get(name)
        return stored is not None and (stored.uid, stored.phase, stored.start) == (uid, phase, start)

    async def load(self) -> tuple[list[StoredReservation], StoredStarts, list[StoredGrant], list[StoredLoss]]:
        """Load the stored promised starts; retry while the API server is unreachable."""
        texts = await self._object.read()
        if not texts:
            return [], StoredStarts(), [], []
        self._data = {
            key: texts[key] for key in (DATA_KEY, STARTS_KEY, RECLAIMS_KEY, COLLECTIONS_KEY) if key in texts
        }
        promises, faults = decode(self._data.get(DATA_KEY, ""))
        grants, grant_faults = decode_grants(self._data.get(DATA_KEY, ""))
        self._grants = {grant.name: grant for grant in grants}
        losses, loss_faults = decode_losses(self._data.get(DATA_KEY, ""))
        starts, fault_of_starts = decode_starts(self._data.get(STARTS_KEY, ""))
        reclaimed, fault_of_reclaims = decode_reclaims(self._data.get(RECLAIMS_KEY, ""))
        collections, fault_of_collections = decode_collections(self._data.get(COLLECTIONS_KEY, ""))
        self._restore(reclaimed, collections)
        for key, fault in (
            *((DATA_KEY, fault) for fault in (*faults, *grant_faults, *loss_faults)),
            (STARTS_KEY, fault_of_starts),
            (RECLAIMS_KEY, fault_of_reclaims),
            (COLLECTIONS_KEY, fault_of_collections),
        ):
            if fault:
                self._object.complain(f"key {key}: {fault}")
        if promises:
            log.info("%d promised starts are restored", len(promises))
        if grants:
            log.info("%d advance reservations are restored", len(grants))
        return promises, starts, grants, losses

    def _restore(self, reclaimed: list[ReclaimedGang], collections: list[StoredCollection]) -> None:
        if reclaimed:
            self._backoff.load(reclaimed)
            self._written = (0, self._backoff.version, 0)
            log.info("%d reclaimed gangs are restored", len(reclaimed))
        if collections and self._collecting is not None:
            self._collecting.restore(collections)
            log.info("the collections of %d gangs are restored", len(collections))

    def save(self) -> None:
        """Submit a write of changed promised starts and reclaimed gangs."""
        if self._version() != self._written:
            self._writes.submit()

    def _version(self) -> tuple[int, int, int]:
        collections = self._collecting.version if self._collecting is not None else 0
        return self._promises()[0], self._backoff.version, collections

    async def _write(self) -> None:
        plan_version, promises, grants, losses = self._promises()
        version, reclaimed = self._version(), self._backoff.export()
        collections = self._collecting.export() if self._collecting is not None else []
        if version == self._written:
            return
        try:
            # Grants come first: they are few, and a lost grant is not granted again.
            lost = losses[:MOST_LOSSES]
            stored = _within(promises, MOST_BYTES - len(encode([], grants, lost)))
            data = {DATA_KEY: encode(stored, grants, lost)}
            if (starts := self._starts()) != StoredStarts():
                data[STARTS_KEY] = encode_starts(starts, _MOST_BYTES_OF_STARTS)
            if reclaimed or RECLAIMS_KEY in self._data:
                data[RECLAIMS_KEY] = encode_reclaims(reclaimed, _MOST_RECLAIMED_GANGS)
            if collections or COLLECTIONS_KEY in self._data:
                data[COLLECTIONS_KEY] = encode_collections(collections)
            news = {key: text for key, text in data.items() if text != self._data.get(key)}
            if news:
                # Views show the age of the record. A new time alone is no reason to write.
                written = {WRITTEN_KEY: encode_written(self._now(), plan_version)}
                await self._object.put(news | written, data | written)
                self._data |= news
        except (ApiError, ConnectionLost) as error:
            self._object.complain(f"is not written: {error}")
        except LeftAlone as error:
            self._object.complain(str(error))
        else:
            self._written = version
            self._grants = {grant.name: grant for grant in grants}
        if self._version() != version:
            self._writes.submit()


def _within(promises: Sequence[StoredReservation], most: int) -> list[StoredReservation]:
    """Return the promised starts, the first made first, that fit into an object of `most` bytes."""
    stored, size = [], 0
    for promise in promises:
        size += len(encode([promise]))
        if size > most:
            break
        stored.append(promise)
    return stored
