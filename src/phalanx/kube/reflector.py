"""One list/watch loop: keeps telling a sink what exists, through every kind of interruption."""

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
from phalanx.kube.pages import ListPages
from phalanx.kube.paths import Resource
from phalanx.kube.retry import Backoff
from phalanx.kube.wire import ItemForm, ObjectHead, head_of, read_event, read_head, read_status, version_number

__all__ = ["Reflector", "ReflectorState"]

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds without a byte after which a watch is taken for dead. Bookmarks come about once a minute.
SILENCE = 130.0
#: A watch that ends sooner than this without news was refused rather than served.
SHORT_WATCH = 1.0
#: Seconds of undisturbed watching after which old failures are forgotten where only a new list helps. Where a watch
#: goes on from where it was, which costs the server little, any that was served is enough: or a load balancer that
#: ends all connections once a minute would keep us blind for half of each.
HEALTHY = 120.0
#: How often one list starts again because its continue token expired before it goes on without pages.
LIST_RESTARTS = 3
#: Of a list so many objects are taken in before others have their turn.
AT_ONCE = 250
#: Seconds for which a refusal may be that of a server that does not know its rules, or all its kinds, yet.
REFUSED = 5.0
#: Seconds between looks meanwhile.
REFUSED_PAUSE = 1.0
#: Seconds between two words on how far a long list has got.
PROGRESS = 3.0
#: Failed answers to a watch from one version before a new list. "Too large resource version" means a server
#: that lags, which passes, or an etcd that was restored from a backup, which only a new list cures.
STUCK_LIMIT = 3


class ReflectorState(enum.Enum):
    """Where the loop stands."""

    LISTING = "listing"
    WATCHING = "watching"
    WAITING = "waiting"  # after a failure, until the next try
    ABSENT = "absent"  # the server does not serve this resource (now)
    FORBIDDEN = "forbidden"


class Reflector(Generic[T]):
    """Lists and watches one resource and tells ``sink`` every change, each object once per state.

    - ``decode`` makes a T of an object's JSON. What it raises harms that object alone (Malformed).
    - ``identify`` gives the Head of a T; by default taken from its ``metadata``, else read from the JSON.
    - ``clock`` is monotonic seconds, ``random`` gives [0, 1), ``sleep`` waits: injected by tests.
    - ``absent_period``: seconds between looks for a resource that is not served or not allowed. While it is
      not served there are no objects: known ones are deleted, ``synced`` is set. While it is not allowed,
      known objects stay; ``optional`` says that a forbidden resource counts as synced and empty.

    - ``failures`` are told what the sink raises: the change is passed over, and not told again.
    - ``sink_all``, where given, is told instead of ``sink`` what exists, of many objects at once: a page of a list,
      the events that came together. No two of them are of the same object, and the order of all changes is kept.
    - ``form``, where given, reads pages of the first list; what it makes of an object is what ``decode`` makes of
      it. Such changes have no ``raw``.
    - ``after``, where given, is waited for before the first object is told; what is listed is asked for meanwhile.

    ``run`` ends only by cancellation. ``last_contact`` (clock) is when the
    server was last heard, ``synced`` is set by the first complete list. ``restarts`` counts what ended lists and
    watches: an HTTP status, "connection", or "error".
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
        page_size: int = 4000,
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
        self._told = sink
        self._told_all = sink_all
        self._after = after
        #: What exists and has not been told yet, for `sink_all`.
        self._gathered: dict[Key, Upsert[T]] = {}
        self._failures = failures or Failures()
        self._path = resource.path(namespace)
        self._selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
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
        #: key -> (uid, resourceVersion as a number) of everything the sink has been told and not untold.
        self._index: dict[Key, tuple[str, int]] = {}
        #: Where the next watch starts; None when only a new list can tell.
        self._version: str | None = None
        self._watching_since: float | None = None
        #: Where the last watch started.
        self._start: str | None = None
        #: The server could not be reached since the last list.
        self._unreached = False
        #: The version at which watches keep failing, and how often they did.
        self._stuck: tuple[str | None, int] = (None, 0)
        #: How many watches in a row ended at once.
        self._short = 0
        #: Since when it is refused, and since when what was there is said to be served no more.
        self._refused_since: float | None = None
        self._unserved_since: float | None = None
        self._failing_since: float | None = None
        self._error = ""

    def __len__(self) -> int:
        """How many objects are known."""
        return len(self._index)

    @property
    def failing(self) -> tuple[float, str]:
        """For how many seconds the server has answered each try with an error, and the last; (0, "") where it does
        not, or where a try is under way."""
        if self._failing_since is None or self.state is not ReflectorState.WAITING:
            return 0.0, ""
        return self._clock() - self._failing_since, self._error

    @property
    def lag(self) -> float:
        """For how many seconds nothing has been heard where a watch should be; 0 while there is one, or nothing to
        watch."""
        if self.state in (ReflectorState.WATCHING, ReflectorState.ABSENT) or self.last_contact == float("-inf"):
            return 0.0
        return max(0.0, self._clock() - self.last_contact)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                if self._version is None:
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
                self._version = None
                pause = self._failed(f"{type(error).__name__}: {error}")
            if pause > 0:
                await self._rest(pause)

    def list_anew(self, *, redeliver: bool = False) -> None:
        """Only while ``run`` is not running: it will begin with a list. ``synced`` is set by that; with
        ``redeliver`` every object is told, also in a state that was told before."""
        self._version = self._watching_since = None
        self.synced.clear()
        if redeliver:
            self._index = {key: (uid, -1) for key, (uid, _) in self._index.items()}

    def look_again(self) -> None:
        """The resource that was not served may be: asks at once."""
        if self.state is ReflectorState.ABSENT:
            self._sooner.set()

    async def _until_reachable(self, text: str) -> None:
        """Until it is time to try again, or anybody else has reached the server."""
        self._unreached = True
        if self._client.contact.lost():
            server = self._client.config.server
            log.warning("the API server at %s cannot be reached, everybody tries on: %s", server, text)
        await self._rest(self._failed(text, level=logging.DEBUG))

    async def _rest(self, pause: float) -> None:
        """Until the time is over, or somebody says that it is worth looking again: a server that had been lost
        answers, and what failed before has no bearing on it."""
        self._sooner.clear()
        answer = self._client.contact.next_answer()
        waking: list[Awaitable[object]] = [self._sleep(pause), self._sooner.wait(), answer]
        resting = [asyncio.ensure_future(each) for each in waking]
        try:
            await asyncio.wait(resting, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                self._backoff.reset()
        finally:
            for each in resting:
                each.cancel()

    def _sink(self, change: Change[T]) -> None:
        if self._told_all is not None and type(change) is Upsert:
            if change.key in self._gathered:
                self._tell_gathered()
            self._gathered[change.key] = change
            return
        self._tell_gathered()
        try:
            self._told(change)
        except Exception as error:
            key = () if isinstance(change, Synced) else filter(None, change.key)
            self._failures.record_failure(
                "intake", f"{type(change).__name__} of {self._path} {'/'.join(key)}", error
            )

    def _tell_gathered(self) -> None:
        if self._gathered and self._told_all is not None:
            gathered, self._gathered = self._gathered, {}
            try:
                self._told_all(list(gathered.values()))
            except Exception as error:
                self._failures.record_failure("intake", f"{len(gathered)} of {self._path}", error)

    # -- list --------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        if self.state not in (ReflectorState.ABSENT, ReflectorState.FORBIDDEN):
            self.state = ReflectorState.LISTING
        for page_size in (*[self._page_size] * LIST_RESTARTS, 0):
            try:
                version, gone = await self._list_pages(page_size)
                break
            except ApiError as error:
                if not error.gone or page_size == 0:
                    raise
                log.info("%s: the list grew too old while being read, starting it again", self._path)
        for key in gone:
            self._forget(key)
        self._version = version
        self.state = ReflectorState.LISTING
        self._complete()

    async def _list_pages(self, page_size: int) -> tuple[str, list[Key]]:
        """The list's version, and what is known and not in it. Pages are told as they come; absences only after."""
        unseen, count = dict.fromkeys(self._index), 0
        later, version, told = bool(unseen), "", self._clock()
        async with aclosing(self._pages.read(page_size, formed=not later)) as pages:
            async for page in pages:
                self.last_contact, version = self._clock(), page.version
                if self._after is not None:
                    await self._after.wait()
                for first in range(0, len(page), AT_ONCE):
                    self._formed(page.objects[first : first + AT_ONCE])
                    for item in page.items[first : first + AT_ONCE]:
                        raw = bytes(item)
                        unseen.pop((later and self._unchanged(raw)) or self._present(raw, listed=True), None)
                    self._tell_gathered()
                    await asyncio.sleep(0)
                count += len(page)
                if page.remaining and self._clock() - told >= PROGRESS:
                    told = self._clock()
                    log.info("%s: %d of %d are read", self._path, count, count + page.remaining)
        return version, list(unseen)

    def _unchanged(self, raw: bytes) -> Key | None:
        """The key of an object that is known in this state: most of a later list need not be decoded."""
        head = read_head(raw)
        key, uid, number = head.key, head.uid, version_number(head.version)
        return key if uid and number >= 0 and self._index.get(key) == (uid, number) else None

    def _complete(self) -> None:
        self.lists += 1
        self._unserved_since = self._failing_since = None
        if self._refused_since is not None and self.state is not ReflectorState.FORBIDDEN:
            log.info("%s: not refused any more", self._path)
            self._refused_since = None
        self._unreached = False
        self._sink(Synced())
        self.synced.set()

    # -- watch -------------------------------------------------------------------------------------------

    async def _watch(self) -> float:
        """One watch request from its start to its clean end; the pause before the next one."""
        begun, start, contact = self._clock(), self._version, self.last_contact
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
                        self._event(line)
                finally:
                    self._tell_gathered()
        if self._version == start and self._clock() - begun < SHORT_WATCH:
            # Nothing was heard by that. Where no watch lasts, lists have to tell what exists.
            self.last_contact = contact
            self._short += 1
            if self._short >= STUCK_LIMIT:
                self._version = None
            return self._failed("the watch ended at once and without news", level=self._level_of_end())
        self._short = 0
        return 0.0

    def _level_of_end(self) -> int:
        """One stream that breaks or ends is nothing to tell: servers and balancers end them now and then."""
        return logging.WARNING if self._backoff.failures else logging.DEBUG

    def _event(self, line: bytes) -> None:
        kind, raw = read_event(line)
        if kind == "MODIFIED" or kind == "ADDED":
            self._present(raw, listed=False)
        elif kind == "DELETED":
            self._absent(raw)
        elif kind == "BOOKMARK":
            self._advance(read_head(raw).version)
        elif kind == "ERROR":
            raise status_error(read_status(raw), request=f"watch {self._path}")
        else:
            log.warning("%s: a watch event of unknown type %r is left out", self._path, kind)

    def _advance(self, version: str) -> None:
        number = version_number(version)
        if version and (number < 0 or number > version_number(self._version or "")):
            self._version = version

    # -- objects -----------------------------------------------------------------------------------------

    def _present(self, raw: bytes, *, listed: bool) -> Key:
        """An object exists. A list is the truth; a watch event may repeat what is known, or be older."""
        obj: T | None = None
        try:
            obj = self._decode(raw)
            head, problem = self._head(obj, raw), ""
        except Exception as error:  # whatever it is, it is this object's
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
            self._advance(version)
        known = self._index.get(key)
        if known is not None:
            if known[0] != uid:
                self._forget(key)  # deleted and created anew behind our back
            elif number >= 0 and (known[1] == number or (known[1] > number and not listed)):
                return key
        if key[1]:
            self._index[key] = (uid, number)
        if problem or obj is None:
            self.malformed += 1
            log.warning("%s: cannot read %s: %s", self._path, "/".join(filter(None, key)) or "an object", problem)
            self._sink(Malformed(key, uid, problem, raw))
        else:
            self._sink(Upsert(obj, raw, key, uid, number))
        return key

    def _formed(self, objects: Sequence[T]) -> None:
        """These exist, says the first list: nearly all of them are new."""
        index, gathered = self._index, self._gathered
        for found in objects:
            head = self._head(found, b"")
            key = head.key
            if key in index or not key[1] or self._told_all is None:
                self._exists(found, head, "", b"", listed=True)
                continue
            number = version_number(head.version)
            index[key] = (head.uid, number)
            gathered[key] = Upsert(found, b"", key, head.uid, number)

    def _absent(self, raw: bytes) -> None:
        """A DELETED event. Of something unknown, or of a predecessor of what is known, it tells nothing."""
        last: T | None = None
        try:
            last = self._decode(raw)
            head = self._identify(last) if self._identify is not None else head_of(last, raw)
        except Exception:  # the deletion counts even when the last state cannot be read
            head = read_head(raw)
        self._advance(head.version)
        known = self._index.get(head.key)
        if known is None or known[0] != head.uid:
            return
        del self._index[head.key]
        self._sink(Delete(head.key, head.uid, last))

    def _forget(self, key: Key) -> None:
        uid, _ = self._index.pop(key)
        self._sink(Delete(key, uid, None))

    # -- failures ----------------------------------------------------------------------------------------

    def _refused(self, error: ApiError) -> float:
        if error.status == 404 and error.from_api_server:
            return self._not_served(error)
        if error.status == 403:
            return self._forbidden(error)
        if error.gone or error.status in (400, 404, 405, 422):
            self._version = None
            if error.gone and self._unreached:
                # The server has been away for longer than it remembers: it is there again, and so is everything.
                self._unreached, self._watching_since = False, None
                self._backoff.reset()
                log.debug("%s: %s; listing again", self._path, error)
                return 0.0
        elif error.status not in (401, 429, 503):
            count = self._stuck[1] + 1 if self._stuck[0] == self._version else 1
            self._stuck = (self._version, count)
            if count >= STUCK_LIMIT:
                self._version = None
        return self._failed(str(error), error.retry_after)

    def _failed(self, text: str, retry_after: float | None = None, level: int = logging.WARNING) -> float:
        since, self._watching_since = self._watching_since, None
        lasted = self._clock() - since if since is not None else 0.0
        served = self._version is not None and (lasted >= SHORT_WATCH or self._version != self._start)
        if served or lasted >= HEALTHY:
            self._backoff.reset()
        pause = self._backoff.next(retry_after)
        self.state = ReflectorState.WAITING
        log.log(level, "%s: %s; next try in %.1f s", self._path, text, pause)
        return pause

    def _not_served(self, error: ApiError) -> float:
        """One of several servers may not know the kind yet: of what is known nothing is gone at the first word."""
        now = self._clock()
        if self._index and self._unserved_since is None:
            self._unserved_since = now
        if self._unserved_since is not None and now - self._unserved_since < REFUSED:
            self.state, self._version = ReflectorState.WAITING, None
            return REFUSED_PAUSE
        if self.state is not ReflectorState.ABSENT:
            log.info("%s is not served (%s); looking again every %g s", self._path, error, self._absent_period)
            self.state = ReflectorState.ABSENT
            for key in list(self._index):
                self._forget(key)
            self._complete()
        self.last_contact = self._clock()
        return self._slowly(ReflectorState.ABSENT)

    def _forbidden(self, error: ApiError) -> float:
        """A server that has just started refuses everybody until it knows the rules: that passes in a second. So
        what limits others, or is there already, does not count as gone at the first refusal."""
        now = self._clock()
        if self._refused_since is None:
            self._refused_since, self.state = now, ReflectorState.WAITING
            log.warning("%s: %s; looking again for %g s", self._path, error, REFUSED)
        if self.state is not ReflectorState.FORBIDDEN and now - self._refused_since < REFUSED:
            return REFUSED_PAUSE
        if self.state is not ReflectorState.FORBIDDEN:
            going = "going without it" if self._optional else "nothing can be done without it"
            going = "going on with what is known" if self.synced.is_set() else going
            log.error(
                "%s: FORBIDDEN, %s, looking again every %g s: %s", self._path, going, self._absent_period, error
            )
            self.state = ReflectorState.FORBIDDEN
            if self._optional and not self.synced.is_set():
                self._complete()
        return self._slowly(ReflectorState.FORBIDDEN)

    def _slowly(self, state: ReflectorState) -> float:
        self.state = state
        self._version = None
        self._watching_since = None
        return self._absent_period * (1 + 0.2 * self._random())
