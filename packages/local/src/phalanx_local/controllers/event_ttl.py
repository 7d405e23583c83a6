"""Expiry of Events one hour after their last change, as in Kubernetes."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

from phalanx_local.controllers.base import Controller
from phalanx_local.registry.api import Api, DeleteOptions
from phalanx_local.storage.records import Change, Key
from phalanx_local.storage.store import Collection

EVENTS: Final = "/events"
_SWEEP: Final = "sweep"


class EventExpiry(Controller):
    """Controller with one timer for all Events: changes are ordered by time, so the oldest Event is first."""

    def __init__(self, api: Api, ttl: float) -> None:
        super().__init__(api)
        self._ttl = ttl
        self._expiring: deque[tuple[float, Key, int]] = deque()
        self._timed = False

    def observe(self, collection: Collection, change: Change) -> None:
        if collection.storage == EVENTS and change.new is not None:
            self._expect(change.key, change.revision)

    def resync(self) -> None:
        collection = self.api.store.collections.get(EVENTS)
        records = list(collection.records.values()) if collection is not None else []
        for record in sorted(records, key=lambda record: record.revision):
            self._expect(record.key, record.revision)

    def _expect(self, key: Key, revision: int) -> None:
        self._expiring.append((self.api.clock.now() + self._ttl, key, revision))
        if not self._timed:
            self._timed = True
            self.add_later(_SWEEP, self._ttl)

    def reconcile(self, key: Hashable) -> None:
        now = self.api.clock.now()
        type_ = self.types()[EVENTS]
        while self._expiring and self._expiring[0][0] <= now:
            _, event, revision = self._expiring.popleft()
            record = self.current(EVENTS, event)
            if record is not None and record.revision == revision:
                self.api.delete(type_, record, DeleteOptions(uid=record.uid), self.api.write())
        self._timed = bool(self._expiring)
        if self._timed:
            self.add_later(_SWEEP, max(1.0, self._expiring[0][0] - now))
