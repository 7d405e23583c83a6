"""Recorder that sends Events in the background and never delays scheduling."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.event_forms import EventForm, EventsForm, ObjectReference
from phalanx.kube.retry import RetryPolicy

__all__ = ["EventRecorder", "EventWriter", "ObjectReference"]

log = logging.getLogger(__name__)

#: The limits of the API's validation, in bytes of UTF-8.
NOTE_LIMIT = 1024
WORD_LIMIT = 128
NAME_LIMIT = 253
#: Seconds: a running series is written again after REFRESH, and ends after SILENCE. The values are
#: kube-scheduler's, so `kubectl describe` shows the events of both schedulers alike.
REFRESH = 1800.0
SILENCE = 360.0
SWEEP_PERIOD = 60.0
_BEHIND = 10
# Queued events above which optional ones are dropped.
_OPTIONAL = 100


class EventWriter(Protocol):
    """Client methods that the event recorder needs (KubeClient has them); `get` only for events with ``once``."""

    async def get(self, path: str) -> Any: ...

    async def create(self, path: str, obj: Any) -> Any: ...

    async def patch(self, path: str, patch: Any, patch_type: PatchType) -> Any: ...


class _Series:
    """Equal Events: the first one is created in the API, for later ones its count is increased."""

    __slots__ = ("body", "count", "created", "last", "once", "path", "queued", "told", "told_at")

    def __init__(self, path: str, body: dict[str, Any], now: float) -> None:
        self.path = path
        self.body = body
        self.count = 1
        self.last = now
        self.told = 0
        self.told_at = now
        self.created = False
        self.queued = False
        self.once = False

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


class EventRecorder:
    """Queue of Events to send: ``record`` neither blocks nor raises; ``run`` sends up to ``senders`` requests at a
    time.

    Events that differ only in time become one object with a count. The count is written at the second event, then
    every half hour, and after six minutes of silence. If more than ``capacity`` events are queued, new ones are
    dropped and counted in ``dropped``. Events recorded with ``behind`` are sent only when no others are queued;
    their queue is ten times as long. So are events with ``optional``, which are dropped if 100 events are queued
    already. ``form`` is the API that the events are written in.

    Events recorded with ``once`` have a name that follows from their content. The first one of a process is not
    sent if the API still has it, so that a restart repeats none.
    """

    def __init__(
        self,
        client: EventWriter,
        *,
        controller: str,
        instance: str,
        capacity: int = 1000,
        senders: int = 2,
        wall_clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        policy: RetryPolicy | None = None,
        form: EventForm | None = None,
    ) -> None:
        self.dropped = 0
        self.sent = 0
        self._client = client
        self._controller = controller
        self._instance = _cut(instance, WORD_LIMIT)
        self._capacity = capacity
        self._senders = senders
        self._wall_clock = wall_clock
        self._sleep = sleep
        self._policy = policy or RetryPolicy(attempts=3, base=0.5, cap=5.0)
        self._form = form or EventsForm()
        self._series: dict[tuple[object, ...], _Series] = {}
        self._queue: deque[_Series] = deque()
        self._behind: deque[_Series] = deque()
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._sending = 0
        self._last_stamp = 0
        self._logged: set[str] = set()
        # Names that follow from the content and were used by this process, in order.
        self._content_names: dict[str, None] = {}

    def record(
        self,
        regarding: ObjectReference,
        *,
        reason: str,
        action: str,
        note: str,
        type: str = "Normal",
        related: ObjectReference | None = None,
        behind: bool = False,
        once: bool = False,
        optional: bool = False,
    ) -> bool:
        """Queue an Event to be sent. Return False if it was dropped because the queue is full."""
        if optional and self.drop_optional():
            return False
        now = self._wall_clock()
        key = (regarding, related, type, reason, action, note)
        series = self._series.get(key)
        if series is not None and now - series.last < SILENCE:
            series.count += 1
            series.last = now
            # The second occurrence is written at once, because it creates the series; the sweep writes later ones.
            return self._enqueue(series) if series.count == 2 else True
        series = self._begin(regarding, related, type, reason, action, note, now)
        if once:
            self._name_by_content(series, regarding, note)
        if not self._enqueue(series, behind=behind or optional):
            return False
        self._series[key] = series
        if len(self._series) > 8 * self._capacity:
            del self._series[next(iter(self._series))]  # the oldest: its count is lost, which matters least
        return True

    def drop_optional(self) -> bool:
        """Return whether an optional Event must be dropped now, and count it: then the caller writes no text."""
        if len(self._queue) + len(self._behind) < _OPTIONAL:
            return False
        self.dropped += 1
        return True

    async def run(self) -> None:
        """Send queued Events until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._senders):
                tasks.create_task(self._send_forever())
            tasks.create_task(self._sweep_forever())

    async def drain(self, seconds: float) -> bool:
        """Wait until all recorded Events are sent (``run`` must be running). Return False after ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def sweep(self) -> None:
        """Queue the writes of repeated Events' counts that are due, and forget series that have ended."""
        now = self._wall_clock()
        for key, series in list(self._series.items()):
            ended = now - series.last >= SILENCE
            if series.count > series.told and (ended or now - series.told_at >= REFRESH):
                self._enqueue(series)
            if ended:
                del self._series[key]

    # -- inside ------------------------------------------------------------------------------------------

    def _begin(
        self,
        regarding: ObjectReference,
        related: ObjectReference | None,
        kind: str,
        reason: str,
        action: str,
        note: str,
        now: float,
    ) -> _Series:
        # Nanoseconds make the name unique; a second event within one clock tick gets the next number.
        stamp = self._last_stamp = max(int(now * 1e9), self._last_stamp + 1)
        suffix = f".{stamp:x}"
        namespace = regarding.namespace or "default"
        body = {
            "metadata": {
                "name": _cut(regarding.name, NAME_LIMIT - len(suffix)) + suffix,
                "namespace": namespace,
            },
            "reportingInstance": self._instance,
            "action": _cut(action, WORD_LIMIT),
            "reason": _cut(reason, WORD_LIMIT),
            "type": kind,
            **self._form.first(self._controller, regarding, _cut(note, NOTE_LIMIT), now),
        }
        if related is not None:
            body["related"] = related
        return _Series(self._form.events.path(namespace), body, now)

    def _name_by_content(self, series: _Series, regarding: ObjectReference, note: str) -> None:
        """Name an Event by its content, unless this process has recorded it before: then it counts as repeated."""
        content = (regarding.uid, regarding.kind, series.body["type"], series.body["reason"], note)
        suffix = "." + hashlib.sha256("\0".join(content).encode("utf-8", "replace")).hexdigest()[:16]
        name = _cut(regarding.name, NAME_LIMIT - len(suffix)) + suffix
        place = f"{series.path}/{name}"
        if place in self._content_names:
            return
        self._content_names[place] = None
        if len(self._content_names) > 8 * self._capacity:
            del self._content_names[next(iter(self._content_names))]
        series.body["metadata"]["name"] = name
        series.once = True

    def _enqueue(self, series: _Series, *, behind: bool = False) -> bool:
        if series.queued:
            return True
        queue = self._behind if behind else self._queue
        if len(queue) >= self._capacity * (_BEHIND if behind else 1):
            self.dropped += 1
            return False
        series.queued = True
        queue.append(series)
        self._idle.clear()
        self._work.set()
        return True

    async def _send_forever(self) -> None:
        while True:
            while not self._queue and not self._behind:
                self._work.clear()
                await self._work.wait()
            series = (self._queue or self._behind).popleft()
            series.queued = False
            self._sending += 1
            try:
                await self._send(series)
            finally:
                self._sending -= 1
                if not self._queue and not self._behind and not self._sending:
                    self._idle.set()

    async def _send(self, series: _Series) -> None:
        count = series.count
        try:
            if series.created:
                await self._update(series)
            elif series.once and await self._exists(series):
                series.created = True
            else:
                await self._create(series)
        except (ApiError, ConnectionLost, ConfigError) as error:
            self.dropped += 1
            self._log_failure(error)
            return
        self.sent += 1
        series.told, series.told_at = count, self._wall_clock()

    async def _exists(self, series: _Series) -> bool:
        """Return whether an earlier process has sent the Event; False if the read is denied, so that the Event is
        sent."""
        try:
            await self._policy.run(lambda: self._client.get(f"{series.path}/{series.name}"), "GET")
        except ApiError as error:
            if error.status in (403, 404):
                return False
            raise
        return True

    async def _create(self, series: _Series) -> None:
        body = (
            series.body if series.count == 1 else {**series.body, **self._form.counted(series.count, series.last)}
        )
        # The name is unique, so AlreadyExists means that a repeated create succeeded before.
        try:
            await self._policy.run(lambda: self._client.create(series.path, body), "POST", guarded=True)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        series.created = True

    async def _update(self, series: _Series) -> None:
        path, patch = f"{series.path}/{series.name}", self._form.counted(series.count, series.last)
        try:
            await self._policy.run(lambda: self._client.patch(path, patch, PatchType.MERGE), "PATCH", guarded=True)
        except ApiError as error:
            if error.status != 404:
                raise
            await self._create(series)  # events expire after an hour; the series outlived its object

    def _log_failure(self, error: Exception) -> None:
        """Log a failed write of an Event, once per kind of failure. A namespace in deletion rejects events, which
        is normal."""
        if isinstance(error, ApiError) and (error.status == 404 or error.namespace_terminating):
            log.debug("event not recorded: %s", error)
            return
        word = error.reason if isinstance(error, ApiError) else type(error).__name__
        if word not in self._logged:
            self._logged.add(word)
            log.warning("events are lost (logged once for %s): %s", word, error)

    async def _sweep_forever(self) -> None:
        while True:
            await self._sleep(SWEEP_PERIOD)
            self.sweep()


def _cut(text: str, limit: int) -> str:
    """Cut a text to ``limit`` bytes of UTF-8, with an ellipsis in place of the removed part."""
    if len(text) <= limit and text.isascii():
        return text
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - 3].decode("utf-8", "ignore") + "…"
