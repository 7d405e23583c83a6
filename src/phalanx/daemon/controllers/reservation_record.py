"""The starts that were promised and the reservations that were granted, kept in a ConfigMap over restarts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from phalanx.daemon.controllers.own_config_map import LeftAlone, OwnConfigMap
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import RetryPolicy
from phalanx.scheduling.reservations.stored import (
    StoredGrant,
    StoredReservation,
    StoredStarts,
    decode,
    decode_grants,
    decode_starts,
    encode,
    encode_starts,
)
from phalanx.views.promise_record import DATA_KEY, NAME, STARTS_KEY, WRITTEN_KEY, encode_written

log = logging.getLogger(__name__)

# A ConfigMap holds a megabyte.
MOST_BYTES = 700_000
_MOST_BYTES_OF_STARTS = 200_000


class ReservationRecord:
    """Reads the promises once, before anything is planned, and writes them whenever they have changed, one write at
    a time. Only the scheduler may write the object: what is in it cannot be a tenant's."""

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        namespace: str,
        promises: Callable[[], tuple[int, Sequence[StoredReservation], Sequence[StoredGrant]]],
        starts: Callable[[], StoredStarts],
        *,
        prefix: str = "phalanx",
        retry: RetryPolicy | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._object = OwnConfigMap(client, namespace, f"{prefix}-{NAME}", "promised starts are made anew", retry)
        self._pool = pool
        self._promises = promises
        self._starts = starts
        self._now = now
        self._written = 0
        self._data: dict[str, str] = {}
        self._writing = False
        # By name: the grants that are written down.
        self._grants: dict[str, StoredGrant] = {}

    def holds(self, name: str, uid: str, phase: str, start: int) -> bool:
        """Whether it is written down how an advance reservation stands: nobody is told before."""
        kept = self._grants.get(name)
        return kept is not None and (kept.uid, kept.phase, kept.start) == (uid, phase, start)

    async def load(self) -> tuple[list[StoredReservation], StoredStarts, list[StoredGrant]]:
        """Returns when the object has been read, however long the API server keeps us waiting for it."""
        texts = await self._object.read()
        if not texts:
            return [], StoredStarts(), []
        self._data = {key: texts[key] for key in (DATA_KEY, STARTS_KEY) if key in texts}
        found, faults = decode(self._data.get(DATA_KEY, ""))
        grants, more = decode_grants(self._data.get(DATA_KEY, ""))
        self._grants = {each.name: each for each in grants}
        starts, fault_of_starts = decode_starts(self._data.get(STARTS_KEY, ""))
        for key, fault in (*((DATA_KEY, fault) for fault in (*faults, *more)), (STARTS_KEY, fault_of_starts)):
            if fault:
                self._object.complain(f"key {key}: {fault}")
        if found:
            log.info("%d promised starts go on where they were", len(found))
        if grants:
            log.info("%d advance reservations go on as they were granted", len(grants))
        return found, starts, grants

    def save(self) -> None:
        """Asks for what has changed to be written."""
        version, promises, grants = self._promises()
        if version == self._written or self._writing:
            return
        self._writing = True

        async def write() -> None:
            try:
                # Grants first: they are few, and what was granted is not made anew.
                kept = _within(promises, MOST_BYTES - len(encode([], grants)))
                data = {DATA_KEY: encode(kept, grants)}
                if (starts := self._starts()) != StoredStarts():
                    data[STARTS_KEY] = encode_starts(starts, _MOST_BYTES_OF_STARTS)
                news = {key: text for key, text in data.items() if text != self._data.get(key)}
                if news:
                    # Views say how old the record is. The time alone is no reason to write.
                    written = {WRITTEN_KEY: encode_written(self._now(), version)}
                    await self._object.put(news | written, data | written)
                    self._data |= news
            except (ApiError, ConnectionLost) as error:
                self._object.complain(f"is not written: {error}")
            except LeftAlone as error:
                self._object.complain(str(error))
            else:
                self._written = version
                self._grants = {each.name: each for each in grants}
            finally:
                self._writing = False
            if self._promises()[0] != version:
                self.save()

        self._pool.submit(Urgency.STATUS, write)


def _within(promises: Sequence[StoredReservation], most: int) -> list[StoredReservation]:
    """As many promises, those first that were made first, as an object holds."""
    kept, size = [], 0
    for each in promises:
        size += len(encode([each]))
        if size > most:
            break
        kept.append(each)
    return kept
