"""One way to write statuses: when an object's is written, tried again, given up, and left to somebody else."""

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

# Changes that come together are written together (seconds).
GATHER = 0.1
# Somebody else writes other words into the same status: after so many seconds at most we say ours again.
_LONGEST_BACKOFF = 600.0
# It is no coincidence when that has happened so often.
_CONTESTED = 2
# What was written is waited for so long until the watch shows it, and looked for so often (seconds).
_UNSEEN = 5.0
_LOOK = 0.1
_TIMES = frozenset({"lastTransitionTime", "transitionID", "scheduleStartTime"})


class DerivedStatus(NamedTuple):
    """What is not true of an object's status, and the status that this was derived from."""

    change: StatusChange
    current: object


class _Entry:
    """The writes of one object. `written` is the last change with the status that it was derived from: until the
    watch shows the object anew, the same change is not written again. At most one write is under way (`busy`);
    `stale` says that there is something new since it began. `said` is what was written last, `contested` counts how
    often it was replaced although it was still true; before `quiet_until` it is not said again, and `later` is
    the look at it that is planned then. `sent` is what may have been written and has not been seen yet: the status
    that it was derived from, what it said, and when.
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


class StatusWriter(Generic[K]):
    """Writes the statuses of one kind of objects, by key.

    `derive` is asked when the write's turn has come, and again for each further try: None where nothing is to be
    said. `name` is an object's in the log. `wrote` is told of what the API server has taken, `given_up` of what it
    does not want although the object is there. `clock` gives monotonic seconds. Of what somebody else writes, too,
    `explain` may say why that is so: then it is no warning.
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
        """Something has changed that the status may depend on; cheap."""
        entry = self._entry(key)
        if not entry.gathering:
            entry.gathering = True
            asyncio.get_running_loop().call_later(GATHER, self._gathered, key, entry)

    def submit(self, key: K) -> None:
        """Like `touch`, once the changes have settled."""
        entry = self._entry(key)
        entry.stale = entry.busy
        if not entry.busy:
            entry.busy = True
            self._pool.submit(Urgency.STATUS, lambda: self._write(key, entry))

    def observed(self, key: K) -> None:
        """The object has been seen since the last write, also where its status is what it was before that."""
        entry = self._entry(key)
        entry.written = entry.sent = None

    def forget(self, key: K) -> None:
        self._entries.pop(key, None)
        self._explained.discard(key)

    def is_contested(self, key: K) -> bool:
        """Whether somebody else has said something else more than once since we say what we say."""
        entry = self._entries.get(key)
        return entry is not None and entry.contested >= _CONTESTED

    def _entry(self, key: K) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
        return entry

    def _rewrite(self) -> None:
        """What has been written may not be there: everything is compared with the objects again."""
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
        return pause

    async def _attempt(self, key: K, entry: _Entry) -> float | None:
        """The seconds until the next try; None where there is none."""
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
        """Whether what was written last is not to be seen yet. A change says only what is different from what is
        seen: with another one on the way a field would keep what that has put there."""
        if sent is None or sent[0] != current or sent[1] == words:
            return False
        return self._clock() < sent[2] + _UNSEEN

    def _is_backing_off(self, key: K, entry: _Entry, words: object, change: StatusChange) -> bool:
        """Two that correct each other would go on for ever: what somebody has replaced although it was still true
        is said again after a pause that grows. Anything new is said at once."""
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
            log.warning("somebody else writes the status of %s, too", self._name(key))
        elif key not in self._explained:
            self._explained.add(key)
            log.info("somebody else writes the status of %s, too: %s", self._name(key), explanation)

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
        # While a definition is replaced there is nothing at the place of an object that is there.
        if passing or (status in (404, 409) and tries < self._retry.attempts):
            if tries == self._retry.attempts:
                # That the server cannot be reached is told by others, once for all.
                level = logging.DEBUG if isinstance(error, ConnectionLost) else logging.WARNING
                log.log(level, "the status of %s was not written, it is tried on: %s", self._name(key), error)
            return backoff.next(error.retry_after if isinstance(error, ApiError) else None)
        # 404 and 409: the object is gone, or another of its name; the watch tells.
        if status == 409:
            # Where it has nothing to tell (a server under contention refuses, too), nobody else would ask again.
            asyncio.get_running_loop().call_later(self._retry.cap, self._insist, key, entry)
        elif status != 404:
            log.warning("the status of %s was not written, it is given up: %s", self._name(key), error)
            self._endpoint.publish_refused(change.ref, error)
            self._given_up(key)
        return None

    def _insist(self, key: K, entry: _Entry) -> None:
        if self._entries.get(key) is entry:
            self.touch(key)


def _timeless(value: Any) -> Any:
    """The same without times: they move while nothing else does."""
    if isinstance(value, dict):
        return {key: _timeless(entry) for key, entry in value.items() if key not in _TIMES}
    if isinstance(value, list):
        return [_timeless(entry) for entry in value]
    return value
