"""Writer of statuses: with retries, and with a growing pause if another writer overwrites them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from phalanx.dialects.status import StatusChange
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.retry import Backoff, RetryPolicy
from phalanx.status.status_endpoint import StatusEndpoint

K = TypeVar("K", bound=Hashable)

log = logging.getLogger(__name__)

# Changes within this time are written together (seconds).
GATHER = 0.1
# Maximum pause before a status that another writer has overwritten is written again (seconds).
_LONGEST_BACKOFF = 600.0
# Number of overwritten statuses from which on the status is contested.
_CONTESTED = 2
# Maximum time until the watch delivers a written status, and the interval of the checks (seconds).
_UNSEEN = 5.0
_LOOK = 0.1
_TIMES = frozenset({"lastTransitionTime", "transitionID", "scheduleStartTime"})


class DerivedStatus(NamedTuple):
    """Status change to write, and the current status from which it was derived."""

    change: StatusChange
    current: object


class _Entry:
    """Writes of the status of one object.

    `written` is the last change with its current status: until the watch delivers the object again, an equal change
    is not repeated. At most one write runs (`busy`); `stale` is True after a newer change. `said` is the last
    written content, and `contested` counts how often another writer has replaced it while it was correct. It is not
    written again before `quiet_until`; `later` is the timer of this write. `sent` is a possibly written change that
    the watch has not delivered: (current status, content, time).
    """

    __slots__ = (
        "backoff",
        "busy",
        "contested",
        "gathering",
        "later",
        "quiet_until",
        "said",
        "sent",
        "stale",
        "written",
    )

    def __init__(self) -> None:
        self.gathering = False
        self.busy = False
        self.stale = False
        self.backoff: Backoff | None = None
        self.written: object = None
        self.said: object = None
        self.sent: tuple[object, object, float] | None = None
        self.contested = 0
        self.quiet_until = 0.0
        self.later: asyncio.TimerHandle | None = None

    @property
    def is_initial(self) -> bool:
        """Whether the entry is that of an object without a write, running or past."""
        return self.said is self.sent is None and not (self.gathering or self.busy or self.contested or self.later)


class StatusWriter(Generic[K]):
    """Writer of the statuses of one kind of objects, by key.

    `derive` is called at the start of each attempt and returns None if the status is correct. `name` returns the
    name of an object for the log. `wrote` receives each accepted change, `given_up` the key of an existing object
    whose status the API server rejected. `clock` returns monotonic seconds. `explain` returns the reason why
    another writer legitimately writes the same status, "" if there is none: then a warning is logged.
    """

    def __init__(
        self,
        endpoint: StatusEndpoint,
        pool: WritePool,
        derive: Callable[[K], DerivedStatus | None],
        name: Callable[[K], str],
        *,
        wrote: Callable[[K, StatusChange], None] = lambda key, change: None,
        given_up: Callable[[K], None] = lambda key: None,
        retry: RetryPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        explain: Callable[[StatusChange], str] = lambda change: "",
    ) -> None:
        self._explain = explain
        self._explained: set[K] = set()
        self._endpoint = endpoint
        self._pool = pool
        self._derive = derive
        self._name = name
        self._wrote = wrote
        self._given_up = given_up
        self._retry = retry or RetryPolicy()
        self._clock = clock
        self._entries: dict[K, _Entry] = {}
        endpoint.moved.append(self._rewrite)

    def touch(self, key: K) -> None:
        """Schedule a status write after a change on which the object's status can depend. Cheap."""
        entry = self._entry(key)
        if not entry.gathering:
            entry.gathering = True
            asyncio.get_running_loop().call_later(GATHER, self._gathered, key, entry)

    def submit(self, key: K) -> None:
        """Submit the status write of an object now."""
        entry = self._entry(key)
        entry.stale = entry.busy
        if not entry.busy:
            entry.busy = True
            self._pool.submit(Urgency.STATUS, lambda: self._write(key, entry))

    def observed(self, key: K) -> None:
        """Record that the watch has delivered the object since its last status write, even with an unchanged
        status."""
        entry = self._entry(key)
        entry.written = entry.sent = None

    def forget(self, key: K) -> None:
        self._entries.pop(key, None)
        self._explained.discard(key)

    def is_contested(self, key: K) -> bool:
        """Return whether another writer has repeatedly replaced the status of this object."""
        entry = self._entries.get(key)
        return entry is not None and entry.contested >= _CONTESTED

    def _entry(self, key: K) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
        return entry

    def _rewrite(self) -> None:
        """Compare the statuses of all objects again, because the API server can have ignored earlier writes."""
        for key, entry in self._entries.items():
            entry.written = entry.said = None
            self.submit(key)

    def _gathered(self, key: K, entry: _Entry) -> None:
        entry.gathering = False
        if self._entries.get(key) is entry:
            self.submit(key)

    async def _write(self, key: K, entry: _Entry) -> float | None:
        pause: float | None = None
        try:
            pause = await self._attempt(key, entry)
        finally:
            if pause is None:
                entry.busy, entry.backoff = False, None
                if entry.stale and self._entries.get(key) is entry:
                    entry.stale = False
                    self.touch(key)
                elif entry.is_initial and self._entries.get(key) is entry:
                    del self._entries[key]  # most objects need no write after a start
        return pause

    async def _attempt(self, key: K, entry: _Entry) -> float | None:
        """Try to write the status of an object. Return the seconds until the next attempt; None if there is
        none."""
        if self._entries.get(key) is not entry:
            return None
        entry.stale = False
        derived = self._derive(key)
        if derived is None:
            entry.written = None
            return None
        change, words = derived.change, _timeless(derived.change.patch)
        if words and self._hides(entry.sent, derived.current, words):
            return _LOOK
        if not words:
            entry.written = None
        elif entry.written == (derived.current, words) or self._is_backing_off(key, entry, words, change):
            change = msgspec.structs.replace(change, patch={})
        else:
            entry.written = (derived.current, words)
        if not change.patch and not change.annotations:
            return None
        entry.sent = (derived.current, words, self._clock())
        try:
            await self._endpoint.write(change)
        except (ApiError, ConnectionLost, ConfigError) as error:
            entry.written = entry.said = None
            return self._failed(key, entry, change, error)
        self._wrote(key, change)
        return None

    def _hides(self, sent: tuple[object, object, float] | None, current: object, words: object) -> bool:
        """Return whether the watch has not delivered the last status write yet. A change contains only fields that
        differ from the observed status, so an unobserved write would leave outdated fields."""
        if sent is None or sent[0] != current or sent[1] == words:
            return False
        return self._clock() < sent[2] + _UNSEEN

    def _is_backing_off(self, key: K, entry: _Entry, words: object, change: StatusChange) -> bool:
        """Return whether the status write must wait because another writer replaced equal content. The pause grows:
        two writers would correct each other endlessly. New content is written at once."""
        now = self._clock()
        if words != entry.said:
            entry.said, entry.contested, entry.quiet_until = words, 0, 0.0
        elif now < entry.quiet_until:
            entry.written = None
            if entry.later is None:
                pause = entry.quiet_until - now
                entry.later = asyncio.get_running_loop().call_later(pause, self._end_backoff, key, entry)
            return True
        else:
            entry.contested += 1
            entry.quiet_until = now + min(_LONGEST_BACKOFF, 2.0**entry.contested)
            if entry.contested == _CONTESTED:
                self._publish_contested(key, change)
        return False

    def _publish_contested(self, key: K, change: StatusChange) -> None:
        explanation = self._explain(change)
        if not explanation:
            log.warning("another writer changes the status of %s as well", self._name(key))
        elif key not in self._explained:
            self._explained.add(key)
            log.info("another writer changes the status of %s as well: %s", self._name(key), explanation)

    def _end_backoff(self, key: K, entry: _Entry) -> None:
        entry.later = None
        if self._entries.get(key) is entry:
            self.touch(key)

    def _failed(
        self, key: K, entry: _Entry, change: StatusChange, error: ApiError | ConnectionLost | ConfigError
    ) -> float | None:
        status = error.status if isinstance(error, ApiError) else 0
        backoff = entry.backoff = entry.backoff or self._retry.backoff()
        tries = backoff.failures + 1
        passing = isinstance(error, ConfigError) or self._retry.retryable(error, "PATCH", guarded=True)
        # While a CRD is replaced, existing objects answer 404.
        if passing or (status in (404, 409) and tries < self._retry.attempts):
            if tries == self._retry.attempts:
                # The client logs an unreachable server once.
                level = logging.DEBUG if isinstance(error, ConnectionLost) else logging.WARNING
                log.log(level, "the status of %s was not written; it is retried: %s", self._name(key), error)
            return backoff.next(error.retry_after if isinstance(error, ApiError) else None)
        # 404 and 409: the object was deleted or replaced; the watch delivers this.
        if status == 409:
            # A server under contention answers 409 as well: without a watch event only this timer retries.
            asyncio.get_running_loop().call_later(self._retry.cap, self._insist, key, entry)
        elif status != 404:
            log.warning("the status of %s was not written and is not retried: %s", self._name(key), error)
            self._endpoint.publish_refused(change.ref, error)
            self._given_up(key)
        return None

    def _insist(self, key: K, entry: _Entry) -> None:
        if self._entries.get(key) is entry:
            self.touch(key)


def _timeless(value: Any) -> Any:
    """Return a status without times, which change without any other change."""
    if isinstance(value, dict):
        return {key: _timeless(entry) for key, entry in value.items() if key not in _TIMES}
    if isinstance(value, list):
        return [_timeless(entry) for entry in value]
    return value
