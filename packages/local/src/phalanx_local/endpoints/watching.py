"""Watch requests: their start, the events of each change, and their end.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final, NamedTuple

from phalanx.model.text.decoding import parse_whole
from phalanx_local.endpoints.listing import Selection, parse_selection
from phalanx_local.errors import StatusError, bad_request, expired, forbidden_field, invalid_options, nameless
from phalanx_local.objects import Json, encode
from phalanx_local.registry.resources import Version
from phalanx_local.storage.records import ADDED, DELETED, MODIFIED, Change, Record, event_line, render
from phalanx_local.storage.store import EVERYTHING, Collection, Store, WatchKey

_MAX_BACKLOG: Final = 50_000
_MIN_DEFAULT_TIMEOUT: Final = 1800

RecordLine = Callable[[str, Record], bytes]


class WatchQuery(NamedTuple):
    """Parsed query parameters of a watch; with `initial`, the current objects are sent first."""

    selection: Selection
    revision: int | None
    bookmarks: bool
    initial: bool
    marks_initial_end: bool
    timeout: float


def parse_watch_query(version: Version, namespace: str, query: Mapping[str, str]) -> WatchQuery:
    """Parse the query parameters of a watch. Raise 400 or 422 if they contradict each other."""
    source = query.get("resourceVersion", "")
    if source and parse_whole(source, 0) is None:
        message = (
            f'resourceVersion: Invalid value: "{source}": strconv.ParseUint: parsing "{source}": invalid syntax'
        )
        raise nameless(500, message)
    revision = int(source) if source else None
    match = query.get("resourceVersionMatch", "")
    send = query.get("sendInitialEvents")
    if send is not None and match != "NotOlderThan":
        message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise invalid_options("ListOptions", forbidden_field("resourceVersionMatch", message))
    if send is None and match:
        message = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        raise invalid_options("ListOptions", forbidden_field("resourceVersionMatch", message))
    initial = send == "true" if send is not None else not revision
    bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
    return WatchQuery(
        parse_selection(version, namespace, query),
        revision,
        bookmarks,
        initial,
        bookmarks and (send == "true" or (send is None and revision == 0)),
        _timeout(query),
    )


def _timeout(query: Mapping[str, str]) -> float:
    source = query.get("timeoutSeconds", "")
    if source:
        seconds = parse_whole(source)
        if seconds is None:
            raise bad_request(f'strconv.ParseInt: parsing "{source}": invalid syntax')
        if seconds > 0:
            return seconds
    # Spread like upstream, so that clients without a timeout do not reconnect at the same time.
    return _MIN_DEFAULT_TIMEOUT * (1 + random.random())


class Watch:
    """One open watch. The store passes every change to `offer`; `stream` yields the selected changes as lines."""

    def __init__(
        self,
        store: Store,
        collection: Collection,
        version: Version,
        query: WatchQuery,
        *,
        bookmark_interval: float,
        line: RecordLine | None = None,
    ) -> None:
        self._store = store
        self._collection = collection
        self._version = version
        self._query = query
        self._interval = bookmark_interval
        self._line = line
        self._lines: list[bytes] = []
        self._wake: asyncio.Future[None] | None = None
        self._ended = False
        self._after = 0
        self._key = _watch_key(query.selection)

    @property
    def storage(self) -> str:
        """Storage of the objects that the watch observes."""
        return self._collection.storage

    def open(self) -> None:
        """Subscribe to changes, and queue the events that the client missed. A revision outside of the history
        becomes an ERROR event."""
        query, store = self._query, self._store
        try:
            if query.initial:
                if query.revision is not None and query.revision > store.revision:
                    raise expired(f"too old resource version: {query.revision} ({store.revision})")
                self._queue_state()
            elif query.revision is not None:
                self._queue_missed(query.revision)
            self._after = store.revision
        except StatusError as error:
            self._lines.append(event_line("ERROR", encode(error.status)))
            self._ended = True
            return
        self._collection.subscribe(self._key, self)

    def _queue_state(self) -> None:
        records = self._collection.records
        for key in self._collection.keys(self._query.selection.namespace):
            record = records[key]
            if self._query.selection.matches(record):
                self._lines.append(self._of_record(ADDED, record))
        if self._query.marks_initial_end:
            self._lines.append(self._bookmark(initial_end=True))

    def _queue_missed(self, revision: int) -> None:
        if revision > self._store.revision:
            # The revision belongs to an earlier run of a server without a data file: the client must list again.
            raise expired(f"too old resource version: {revision} ({self._store.revision})")
        for change in self._collection.since(revision):
            self.offer(change)

    def offer(self, change: Change) -> None:
        """Queue the watch event of a change if the watch selects the object."""
        if self._ended:
            return
        matches = self._query.selection.matches
        now = change.new is not None and matches(change.new)
        before = change.old is not None and matches(change.old)
        if now:
            kind = MODIFIED if before else ADDED
        elif before:
            kind = DELETED
        else:
            return
        if self._line is None:
            self._lines.append(change.line(kind, self._version))
        else:
            self._lines.append(self._line(kind, change.shown(kind)))
        if len(self._lines) > _MAX_BACKLOG:
            self.end()  # a client that is too slow resumes from its last event
        self._notify()

    def end(self) -> None:
        """End the watch after its queued events."""
        self._ended = True
        self._notify()

    def cut(self, error: StatusError | None = None) -> None:
        """End the watch at once, with an ERROR event if an error is given."""
        self._lines = [event_line("ERROR", encode(error.status))] if error is not None else []
        self.end()

    def close(self) -> None:
        self._collection.unsubscribe(self._key, self)

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield chunks of whole lines until the watch times out, ends or fails."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._query.timeout
        next_bookmark = loop.time() + self._interval
        while True:
            if self._lines:
                chunk = b"".join(self._lines)
                self._lines = []
                yield chunk
                continue
            if self._ended:
                return
            now = loop.time()
            if now >= deadline:
                if self._query.bookmarks:
                    yield self._bookmark()
                return
            if self._query.bookmarks and now >= next_bookmark:
                next_bookmark = now + self._interval
                yield self._bookmark()
                continue
            until = min(deadline, next_bookmark) if self._query.bookmarks else deadline
            self._wake = loop.create_future()
            timer = loop.call_at(until, self._notify)
            try:
                await self._wake
            finally:
                timer.cancel()
                self._wake = None

    def _of_record(self, kind: str, record: Record) -> bytes:
        if self._line is not None:
            return self._line(kind, record)
        return event_line(kind, render(record, self._version))

    def _bookmark(self, *, initial_end: bool = False) -> bytes:
        meta: Json = {"resourceVersion": str(self._store.revision)}
        if initial_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        body: Json = {"metadata": meta}
        if self._version.type.storage == "/pods":
            # Go's zero Pod has a null list here; clients that decode bookmarks as pods get the same upstream.
            body["spec"] = {"containers": None}
            body["status"] = {}
        return event_line("BOOKMARK", self._version.head + encode(body)[1:])


def _watch_key(selection: Selection) -> WatchKey:
    """Return the narrowest index key under which all matching changes are published."""
    name = selection.fields.exact("metadata.name")
    if name is not None:
        return ("name", name)
    node = selection.fields.exact("spec.nodeName")
    if node is not None:
        return ("node", node)
    if selection.namespace:
        return ("namespace", selection.namespace)
    return EVERYTHING
