"""What the controllers share: a queue of keys, worked off one at a time on the event loop."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Final

from phalanx_local.admission.webhook_calls import UnansweredWebhook, WebhookAnswers, WebhookClient
from phalanx_local.errors import StatusError
from phalanx_local.objects import Json
from phalanx_local.registry.api import Api
from phalanx_local.registry.resources import ResourceType
from phalanx_local.storage.records import Change, Record
from phalanx_local.storage.store import Collection

log = logging.getLogger(__name__)

_SLICE_SECONDS: Final = 0.01
_RETRY_SECONDS: Final = 1.0


class Controller(ABC):
    """Reconciles keys. A key that is added again while it waits is worked off once."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._queue: dict[Hashable, None] = {}
        self._wake = asyncio.Event()
        self.webhooks = WebhookClient()
        self._answers: dict[Hashable, WebhookAnswers] = {}
        self._given: WebhookAnswers = {}
        self._asking: set[asyncio.Task[None]] = set()

    @abstractmethod
    def observe(self, collection: Collection, change: Change) -> None:
        """Queues what a change calls for; cheap, and without writing."""

    @abstractmethod
    def reconcile(self, key: Hashable) -> None:
        """Brings one key in order; may write. Errors are logged and the key is tried again."""

    @abstractmethod
    def resync(self) -> None:
        """Queues everything that may call for work, at the start."""

    def add(self, key: Hashable) -> None:
        self._queue[key] = None
        self._wake.set()

    def add_later(self, key: Hashable, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self.add, key)

    async def run(self) -> None:
        """Works until it is cancelled, in slices that leave the loop to requests."""
        now = asyncio.get_running_loop().time
        while True:
            await self._wake.wait()
            end = now() + _SLICE_SECONDS
            while now() < end:
                if not self._queue:
                    self._wake.clear()
                    break
                key = next(iter(self._queue))
                del self._queue[key]
                self._try(key)
            await asyncio.sleep(0)

    def _try(self, key: Hashable) -> None:
        self._given = self._answers.get(key, {})
        try:
            self.reconcile(key)
        except UnansweredWebhook as pending:
            task = asyncio.create_task(self._answer(key, pending))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
            return
        except StatusError as problem:
            if problem.code != 404 and not _is_terminating(problem):
                log.warning("%s: %s: %s", type(self).__name__, key, problem)
                self.add_later(key, _RETRY_SECONDS)
        except Exception:
            log.exception("%s: %s", type(self).__name__, key)
            self.add_later(key, _RETRY_SECONDS)
        self._answers.pop(key, None)

    async def _answer(self, key: Hashable, pending: UnansweredWebhook) -> None:
        """What was reconciled is reconciled again once webhooks have said what they were asked."""
        await self.webhooks.answer(pending, self._answers.setdefault(key, {}))
        self.add(key)

    # --- reading and writing as the server itself

    def types(self) -> Mapping[str, ResourceType]:
        """Resource types by storage; of two views of one storage the first."""
        return self.api.registry.by_storage()

    def current(self, storage: str, key: tuple[str, str]) -> Record | None:
        collection = self.api.store.collections.get(storage)
        return collection.records.get(key) if collection is not None else None

    def create(self, storage: str, namespace: str, body: Json) -> Record:
        """Makes an object as a client of the server would, so webhooks are asked about it."""
        return self.api.create(
            self.types()[storage].preferred, namespace, body, self.api.write(answers=self._given)
        )

    def save(self, type_: ResourceType, record: Record, new: Json) -> Record:
        """Stores a changed copy of a record's object; the last finalizer's removal removes the object."""
        return self.api.save(type_, record, new, record.load(), self.api.write())


def _is_terminating(problem: StatusError) -> bool:
    """Whether a write was refused because its namespace is going away, where there is nothing left to do."""
    causes = (problem.details or {}).get("causes") or [{}]
    return bool(causes[0].get("reason") == "NamespaceTerminating")
