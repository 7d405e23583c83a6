"""List/watch loop for one resource: passes all changes to a sink, through every kind of interruption."""

from __future__ import annotations

import asyncio
import enum
import logging
import random as random_module
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

from phalanx.kube.changes import Change, Delete, Key, Malformed, Sink, Synced, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost, Unreachable, status_error
from phalanx.kube.failures import Failures
from phalanx.kube.known_objects import KnownObject, KnownObjects
from phalanx.kube.pages import PAGE_SIZE, ListPages
from phalanx.kube.paths import Resource
from phalanx.kube.retry import Backoff
from phalanx.kube.watch_position import WatchPosition
from phalanx.kube.wire import ItemForm, ObjectHead, head_of, read_event, read_head, read_status, version_number

__all__ = ["Reflector", "ReflectorState"]

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds without a byte after which a watch counts as dead. Bookmarks arrive about once a minute.
SILENCE = 130.0
#: A watch that ends sooner than this (seconds) without a change counts as refused.
SHORT_WATCH = 1.0
#: Seconds of undisturbed watching after which the backoff is reset if the next step is a new list. A watch that
#: resumes costs the server little, so any served watch resets it: else a load balancer that closes all connections
#: once a minute would keep us blind for half of each minute.
HEALTHY = 120.0
#: How often one list restarts after an expired continue token before it is read without pages.
LIST_RESTARTS = 3
#: Number of listed objects that are handled before other tasks of the event loop run.
AT_ONCE = 250
#: Seconds for which a refusal can come from a server that has not loaded its access rules or kinds yet.
REFUSED = 5.0
#: Seconds between attempts during that time.
REFUSED_PAUSE = 1.0
#: Seconds between two log lines about the progress of a long list.
PROGRESS = 3.0
#: Failed watches from one version before a new list. "Too large resource version" means a server that lags,
#: which passes, or an etcd that was restored from a backup, which only a new list resolves.
STUCK_LIMIT = 3


class ReflectorState(enum.Enum):
    """State of a reflector's list/watch loop."""

    LISTING = "listing"
    WATCHING = "watching"
    WAITING = "waiting"  # after a failure, until the next attempt
    ABSENT = "absent"  # the server does not serve this resource at present
    FORBIDDEN = "forbidden"


class Reflector(Generic[T]):
    """List and watch of one resource; ``sink`` receives every change, each object once per state.

    - ``decode`` makes a T of an object's JSON. Its exception affects that object alone (Malformed).
    - ``identify`` returns the ObjectHead of a T; by default it is read from its ``metadata``, else from the JSON.
    - ``clock`` is monotonic seconds, ``random`` returns [0, 1), ``sleep`` waits: injected by tests.
    - ``absent_period``: seconds between attempts for a resource that is not served or forbidden. While it is
      not served there are no objects: known ones are deleted, ``synced`` is set. While it is forbidden,
      known objects remain; with ``optional`` a forbidden resource counts as synced and empty.

    - ``failures`` records exceptions of the sink: the change is skipped, and not passed again.
    - ``sink_all``, if given, receives existing objects in place of ``sink``, many at once: a page of a list, or the
      events of one read. A batch has no two changes of one object, and the order of all changes is kept.
    - ``form``, if given, decodes pages of the first list, and events; its objects equal those of ``decode``.
      Such changes have no ``raw``.
    - ``after``, if given, is awaited before the first object is passed on; the list is requested meanwhile.

    ``run`` ends only by cancellation. ``last_contact`` (clock) is the time of the last bytes from the
    server, ``synced`` is set by the first complete list. ``restarts`` counts the ends of lists and
    watches by cause: an HTTP status, "connection", or "error".
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        decode: Callable[[bytes], T],
        sink: Sink[T],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page_size: int = PAGE_SIZE,
        identify: Callable[[T], ObjectHead] | None = None,
        optional: bool = False,
        absent_period: float = 30.0,
        silence: float = SILENCE,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random_module.random,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        failures: Failures | None = None,
        sink_all: Callable[[Sequence[Upsert[T]]], None] | None = None,
        form: ItemForm[T] | None = None,
        after: asyncio.Event | None = None,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.last_contact = float("-inf")
        self.state = ReflectorState.LISTING
        self.lists = 0
        self.restarts: Counter[str] = Counter()
        self.malformed = 0
        self._client = client
        self._decode = decode
        self._identify = identify
        self._deliver = sink
        self._deliver_all = sink_all
        self._after = after
        #: Existing objects that were not passed to `sink_all` yet.
        self._gathered: dict[Key, Upsert[T]] = {}
        self._failures = failures or Failures()
        self._path = resource.path(namespace)
        self._selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._form = form
        self._pages = ListPages(client, self._path, self._selectors, form)
        self._page_size = page_size
        self._optional = optional
        self._absent_period = absent_period
        self._sooner = asyncio.Event()
        self._silence = silence
        self._clock = clock
        self._random = random
        self._sleep = sleep
        self._backoff = Backoff(random=random)
        #: Every object that the sink knows.
        self._index = KnownObjects()
        self._position = WatchPosition()
        self._watching_since: float | None = None
        #: Start version of the last watch.
        self._start: str | None = None
        #: Whether the server was unreachable since the last list.
        self._unreached = False
        #: Version at which watches keep failing, and the number of failures.
        self._stuck: tuple[str | None, int] = (None, 0)
        #: Number of consecutive watches that ended at once.
        self._short = 0
        #: Times since which the resource is forbidden, and since which a known resource is not served.
        self._refused_since: float | None = None
        self._unserved_since: float | None = None
        self._failing_since: float | None = None
        self._error = ""

    def __len__(self) -> int:
        """Return the number of known objects of the resource."""
        return len(self._index)

    @property
    def failing(self) -> tuple[float, str]:
        """Seconds for which the server has answered each attempt with an error, and the last error; (0, "") if it
        has not, or during an attempt."""
        if self._failing_since is None or self.state is not ReflectorState.WAITING:
            return 0.0, ""
        return self._clock() - self._failing_since, self._error

    @property
    def lag(self) -> float:
        """Seconds without a byte from the server while a watch should be open; 0 while it is open or not needed."""
        if self.state in (ReflectorState.WATCHING, ReflectorState.ABSENT) or self.last_contact == float("-inf"):
            return 0.0
        return max(0.0, self._clock() - self.last_contact)

    async def run(self) -> None:
        """List and watch the resource until cancelled."""
        while True:
            try:
                if self._position.version is None:
                    await self._list()
                pause = await self._watch()
            except ApiError as error:
                self._failing_since, self._error = self._failing_since or self._clock(), str(error)
                if self.state is not ReflectorState.ABSENT and self._refused_since is None:
                    self.restarts[str(error.status)] += 1
                pause = self._refused(error)
            except Unreachable as error:
                self._failing_since = None
                self.restarts["connection"] += 1
                await self._until_reachable(str(error))
                continue
            except (ConnectionLost, ConfigError) as error:
                self.restarts["connection"] += 1
                self._unreached = True
                level = self._level_of_end() if isinstance(error, ConnectionLost) else logging.WARNING
                pause = self._failed(str(error), level=level)
            except Exception as error:
                self.restarts["error"] += 1
                self._failures.record_failure("reflector", self._path, error)
                self._position.begin(None)
                pause = self._failed(f"{type(error).__name__}: {error}")
            if pause > 0:
                await self._wait(pause)

    def list_anew(self, *, redeliver: bool = False) -> None:
        """Begin the next ``run`` with a list, which sets ``synced``. Call this method only while ``run`` is not
        running.

        With ``redeliver`` every object is passed on, also in a known state.
        """
        self._position.begin(None)
        self._watching_since = None
        self.synced.clear()
        if redeliver:
            self._index.forget_versions()

    def look_again(self) -> None:
        """Retry a resource that was not served or forbidden at once, because it can be readable by now."""
        if self.state is ReflectorState.ABSENT:
            self._sooner.set()

    async def _until_reachable(self, text: str) -> None:
        """Wait until the next list or watch is due, or another request has reached the server."""
        self._unreached = True
        if self._client.contact.lost():
            server = self._client.config.server
            log.warning("the API server at %s is unreachable, all its clients retry: %s", server, text)
        await self._wait(self._failed(text, level=logging.DEBUG))

    async def _wait(self, pause: float) -> None:
        """Wait until `pause` is over, or `look_again` is called, or a lost server answers again; an answer also
        resets the backoff, because earlier failures do not matter any more."""
        self._sooner.clear()
        answer = self._client.contact.next_answer()
        wakers: list[Awaitable[object]] = [self._sleep(pause), self._sooner.wait(), answer]
        tasks = [asyncio.ensure_future(task) for task in wakers]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                self._backoff.reset()
        finally:
            for task in tasks:
                task.cancel()

    def _sink(self, change: Change[T]) -> None:
        if self._deliver_all is not None and type(change) is Upsert:
            if change.key in self._gathered:
                self._deliver_gathered()
            self._gathered[change.key] = change
            return
        self._deliver_gathered()
        try:
            self._deliver(change)
        except Exception as error:
            key = () if isinstance(change, Synced) else filter(None, change.key)
            self._failures.record_failure(
                "intake", f"{type(change).__name__} of {self._path} {'/'.join(key)}", error
            )

    def _deliver_gathered(self) -> None:
        if self._gathered and self._deliver_all is not None:
            gathered, self._gathered = self._gathered, {}
            try:
                self._deliver_all(list(gathered.values()))
            except Exception as error:
                self._failures.record_failure("intake", f"{len(gathered)} of {self._path}", error)

    # -- list --------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        if self.state not in (ReflectorState.ABSENT, ReflectorState.FORBIDDEN):
            self.state = ReflectorState.LISTING
        for page_size in (*[self._page_size] * LIST_RESTARTS, 0):
            try:
                version, deleted_keys = await self._list_pages(page_size)
                break
            except ApiError as error:
                if not error.gone or page_size == 0:
                    raise
                log.info("%s: the list expired while it was read, restarting it", self._path)
        for key in deleted_keys:
            self._forget(key)
        self._position.begin(version)
        self.state = ReflectorState.LISTING
        self._complete()

    async def _list_pages(self, page_size: int) -> tuple[str, list[Key]]:
        """Read all pages of a list and pass their objects to the sink. Return the list's version and the keys of
        vanished objects."""
        unseen, count = dict.fromkeys(self._index), 0
        is_relist, version, logged_at = bool(unseen), "", self._clock()
        async with aclosing(self._pages.read(page_size, formed=not is_relist)) as pages:
            async for page in pages:
                self.last_contact, version = self._clock(), page.version
                if self._after is not None:
                    await self._after.wait()
                for first in range(0, len(page), AT_ONCE):
                    for obj in page.objects[first : first + AT_ONCE]:
                        self._formed(obj, listed=True)
                    for item in page.items[first : first + AT_ONCE]:
                        raw = bytes(item)
                        unseen.pop((is_relist and self._unchanged(raw)) or self._present(raw, listed=True), None)
                    self._deliver_gathered()
                    await asyncio.sleep(0)
                count += len(page)
                if page.remaining and self._clock() - logged_at >= PROGRESS:
                    logged_at = self._clock()
                    log.info("%s: %d of %d are read", self._path, count, count + page.remaining)
        return version, list(unseen)

    def _unchanged(self, raw: bytes) -> Key | None:
        """Return the key of a listed object whose version is known already, else None: most of a relist needs no
        decoding."""
        head = read_head(raw)
        key, uid, number = head.key, head.uid, version_number(head.version)
        known = self._index.get(key)
        is_known = known is not None and known.uid == uid and known.version == number
        return key if uid and number >= 0 and is_known else None

    def _complete(self) -> None:
        self.lists += 1
        self._unserved_since = self._failing_since = None
        if self._refused_since is not None and self.state is not ReflectorState.FORBIDDEN:
            log.info("%s: allowed again", self._path)
            self._refused_since = None
        self._unreached = False
        self._sink(Synced())
        self.synced.set()

    # -- watch -------------------------------------------------------------------------------------------

    async def _watch(self) -> float:
        """Run one watch request from its start to its clean end. Return the pause before the next one."""
        begun, start, contact, form = self._clock(), self._position.version, self.last_contact, self._form
        self._start = start
        params = {
            **self._selectors,
            "watch": True,
            "resourceVersion": start,
            "allowWatchBookmarks": True,
            "timeoutSeconds": 300 + int(300 * self._random()),
        }
        batches = self._client.stream_batches(self._path, params, read_timeout=self._silence)
        async with aclosing(batches):
            async for lines in batches:
                self.last_contact = now = self._clock()
                if self._watching_since is None:
                    self._watching_since, self._refused_since = now, None
                    self.state = ReflectorState.WATCHING
                try:
                    for line in lines:
                        if form is None or (obj := form.event(line)) is None:
                            self._event(line)
                        else:
                            self._formed(obj, listed=False)
                finally:
                    self._deliver_gathered()
        if self._position.version == start and self._clock() - begun < SHORT_WATCH:
            # The watch has brought nothing. If no watch lasts, lists have to find the changes.
            self.last_contact = contact
            self._short += 1
            if self._short >= STUCK_LIMIT:
                self._position.begin(None)
            return self._failed("the watch ended at once and without a change", level=self._level_of_end())
        self._short = 0
        return 0.0

    def _level_of_end(self) -> int:
        """Return the log level for the end of a watch stream: low for the first one, as servers end streams now and
        then."""
        return logging.WARNING if self._backoff.failures else logging.DEBUG

    def _event(self, line: bytes) -> None:
        kind, raw = read_event(line)
        if kind == "MODIFIED" or kind == "ADDED":
            self._present(raw, listed=False)
        elif kind == "DELETED":
            self._absent(raw)
        elif kind == "BOOKMARK":
            version = read_head(raw).version
            self._position.advance(version, version_number(version))
        elif kind == "ERROR":
            raise status_error(read_status(raw), request=f"watch {self._path}")
        else:
            log.warning("%s: ignoring a watch event of unknown type %r", self._path, kind)

    # -- objects -----------------------------------------------------------------------------------------

    def _present(self, raw: bytes, *, listed: bool) -> Key:
        """Pass an existing object to the sink. A list is always current; a watch event can repeat a known version,
        or be older."""
        obj: T | None = None
        try:
            obj = self._decode(raw)
            head, problem = self._head(obj, raw), ""
        except Exception as error:  # any failure of `decode` affects this object only
            head, problem = read_head(raw), f"{type(error).__name__}: {error}"
        return self._exists(obj, head, problem, raw, listed=listed)

    def _head(self, obj: T, raw: bytes) -> ObjectHead:
        return self._identify(obj) if self._identify is not None else head_of(obj, raw)

    def _exists(self, obj: T | None, head: ObjectHead, problem: str, raw: bytes, *, listed: bool) -> Key:
        key, uid, version = head.key, head.uid, head.version
        if not problem and not key[1]:
            problem = "no metadata.name"
        number = version_number(version)
        if not listed:
            self._position.advance(version, number)
        known = self._index.namespaces[key[0]].get(key[1])
        if known is not None:
            if known.uid != uid:
                self._forget(key)  # the object was deleted and recreated while no watch ran
                known = None
            elif number >= 0 and (known.version == number or (known.version > number and not listed)):
                return key
        if known is not None:
            known.version = number
        elif key[1]:
            self._index.namespaces[key[0]][key[1]] = KnownObject(uid, number)
        if problem or obj is None:
            self.malformed += 1
            log.warning("%s: cannot read %s: %s", self._path, "/".join(filter(None, key)) or "an object", problem)
            self._sink(Malformed(key, uid, problem, raw))
        else:
            self._sink(Upsert(obj, raw, key, uid, number))
        return key

    def _formed(self, obj: T, *, listed: bool) -> None:
        """Pass a decoded object without its JSON to the sink: nearly all are new, or newer than the known one."""
        head, namespaces = self._head(obj, b""), self._index.namespaces
        key, number = head.key, version_number(head.version)
        known = namespaces[key[0]].get(key[1])
        newer = known is None or (known.uid == head.uid and known.version < number)
        if number < 0 or not key[1] or not newer or key in self._gathered or self._deliver_all is None:
            self._exists(obj, head, "", b"", listed=listed)
            return
        if not listed:
            self._position.advance(head.version, number)
        if known is None:
            namespaces[key[0]][key[1]] = KnownObject(head.uid, number)
        else:
            known.version = number
        self._gathered[key] = Upsert(obj, b"", key, head.uid, number)

    def _absent(self, raw: bytes) -> None:
        """Pass the deletion of a DELETED event to the sink; ignore it for an unknown object or for the predecessor
        of a known one."""
        last: T | None = None
        try:
            last = self._decode(raw)
            head = self._identify(last) if self._identify is not None else head_of(last, raw)
        except Exception:  # the deletion counts even if the last state is unreadable
            head = read_head(raw)
        self._position.advance(head.version, version_number(head.version))
        known = self._index.get(head.key)
        if known is None or known.uid != head.uid:
            return
        self._index.pop(head.key)
        self._sink(Delete(head.key, head.uid, last))

    def _forget(self, key: Key) -> None:
        self._sink(Delete(key, self._index.pop(key).uid, None))

    # -- failures ----------------------------------------------------------------------------------------

    def _refused(self, error: ApiError) -> float:
        if error.status == 404 and error.from_api_server:
            return self._not_served(error)
        if error.status == 403:
            return self._forbidden(error)
        if error.gone or error.status in (400, 404, 405, 422):
            self._position.begin(None)
            if error.gone and self._unreached:
                # The server was away longer than its watch history: it is back, so a new list works at once.
                self._unreached, self._watching_since = False, None
                self._backoff.reset()
                log.debug("%s: %s; listing again", self._path, error)
                return 0.0
        elif error.status not in (401, 429, 503):
            count = self._stuck[1] + 1 if self._stuck[0] == self._position.version else 1
            self._stuck = (self._position.version, count)
            if count >= STUCK_LIMIT:
                self._position.begin(None)
        return self._failed(str(error), error.retry_after)

    def _failed(self, text: str, retry_after: float | None = None, level: int = logging.WARNING) -> float:
        since, self._watching_since = self._watching_since, None
        lasted = self._clock() - since if since is not None else 0.0
        resumes = self._position.version is not None and (
            lasted >= SHORT_WATCH or self._position.version != self._start
        )
        if resumes or lasted >= HEALTHY:
            self._backoff.reset()
        pause = self._backoff.next(retry_after)
        self.state = ReflectorState.WAITING
        log.log(level, "%s: %s; next try in %.1f s", self._path, text, pause)
        return pause

    def _not_served(self, error: ApiError) -> float:
        """Handle a 404 for the whole resource. One of several servers can lack the kind yet, so known objects are
        not deleted at once."""
        now = self._clock()
        if len(self._index) and self._unserved_since is None:
            self._unserved_since = now
        if self._unserved_since is not None and now - self._unserved_since < REFUSED:
            self.state = ReflectorState.WAITING
            self._position.begin(None)
            return REFUSED_PAUSE
        if self.state is not ReflectorState.ABSENT:
            log.info("%s is not served (%s); retrying every %g s", self._path, error, self._absent_period)
            self.state = ReflectorState.ABSENT
            for key in list(self._index):
                self._forget(key)
            self._complete()
        self.last_contact = self._clock()
        return self._retry_slowly(ReflectorState.ABSENT)

    def _forbidden(self, error: ApiError) -> float:
        """Handle a 403 for the whole resource. A server that has just started forbids everything for about a
        second, until it has loaded its rules, so objects that limit other pods or exist already are not dropped at
        the first refusal."""
        now = self._clock()
        if self._refused_since is None:
            self._refused_since, self.state = now, ReflectorState.WAITING
            log.warning("%s: %s; retrying for %g s", self._path, error, REFUSED)
        if self.state is not ReflectorState.FORBIDDEN and now - self._refused_since < REFUSED:
            return REFUSED_PAUSE
        if self.state is not ReflectorState.FORBIDDEN:
            going = "continuing without it" if self._optional else "this resource is required"
            going = "continuing with the known objects" if self.synced.is_set() else going
            log.error("%s: FORBIDDEN, %s, retrying every %g s: %s", self._path, going, self._absent_period, error)
            self.state = ReflectorState.FORBIDDEN
            if self._optional and not self.synced.is_set():
                self._complete()
        return self._retry_slowly(ReflectorState.FORBIDDEN)

    def _retry_slowly(self, state: ReflectorState) -> float:
        self.state = state
        self._position.begin(None)
        self._watching_since = None
        return self._absent_period * (1 + 0.2 * self._random())
