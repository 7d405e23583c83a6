"""Base of the controllers: a work queue of object keys, reconciled one key at a time on the event loop."""

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
    """Controller that reconciles objects by key. A key that is added again while it is queued is reconciled
    once."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._queue: dict[Hashable, None] = {}
        self._wake = asyncio.Event()
        self.webhooks = WebhookClient()
        self._answers: dict[Hashable, WebhookAnswers] = {}
        self._webhook_answers: WebhookAnswers = {}
        self._webhook_tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    def observe(self, collection: Collection, change: Change) -> None:
        """Queue the keys of objects that a change affects; fast, and without writes."""

    @abstractmethod
    def reconcile(self, key: Hashable) -> None:
        """Reconcile the object with a key; can write. Errors are logged and the key is retried."""

    @abstractmethod
    def resync(self) -> None:
        """Queue the keys of all objects that can need work, at the start."""

    def add(self, key: Hashable) -> None:
        self._queue[key] = None
        self._wake.set()

    def add_later(self, key: Hashable, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self.add, key)

    async def run(self) -> None:
        """Reconcile queued keys until cancelled, in short slices so that the server handles requests between the
        slices."""
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
        self._webhook_answers = self._answers.get(key, {})
        try:
            self.reconcile(key)
        except UnansweredWebhook as pending:
            task = asyncio.create_task(self._answer_webhooks(key, pending))
            self._webhook_tasks.add(task)
            task.add_done_callback(self._webhook_tasks.discard)
            return
        except StatusError as problem:
            if problem.code != 404 and not _is_terminating(problem):
                log.warning("%s: %s: %s", type(self).__name__, key, problem)
                self.add_later(key, _RETRY_SECONDS)
        except Exception:
            log.exception("%s: %s", type(self).__name__, key)
            self.add_later(key, _RETRY_SECONDS)
        self._answers.pop(key, None)

    async def _answer_webhooks(self, key: Hashable, pending: UnansweredWebhook) -> None:
        """Call the webhooks that a controller's write needs, then reconcile the key again."""
        await self.webhooks.answer(pending, self._answers.setdefault(key, {}))
        self.add(key)

    # --- reads and writes as the server itself

    def types(self) -> Mapping[str, ResourceType]:
        """Return the resource type of each storage; if a storage has several types, the first one."""
        return self.api.registry.by_storage()

    def current(self, storage: str, key: tuple[str, str]) -> Record | None:
        collection = self.api.store.collections.get(storage)
        return collection.records.get(key) if collection is not None else None

    def create(self, storage: str, namespace: str, body: Json) -> Record:
        """Create an object like a client of the server, so that webhooks are called."""
        return self.api.create(
            self.types()[storage].preferred, namespace, body, self.api.write(answers=self._webhook_answers)
        )

    def save(self, type_: ResourceType, record: Record, new: Json) -> Record:
        """Store a changed copy of a stored object; a terminating object without finalizers is deleted."""
        return self.api.save(type_, record, new, record.load(), self.api.write())


def _is_terminating(problem: StatusError) -> bool:
    """Return whether a create request failed because its namespace terminates: then the controller has no work
    left."""
    causes = (problem.details or {}).get("causes") or [{}]
    return bool(causes[0].get("reason") == "NamespaceTerminating")
