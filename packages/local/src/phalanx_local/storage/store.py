"""Store of all objects, with one revision counter, a bounded history of changes, and subscribers.

The store is synchronous and runs on the thread of the event loop, so that a read-modify-write is atomic without
locks. Readers get immutable records; only this module replaces them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Protocol

from phalanx_local.errors import expired
from phalanx_local.objects import Json
from phalanx_local.storage.records import Change, Key, Record, body_of

FieldsOf = Callable[[Json], dict[str, str]]
Listener = Callable[["Collection", Change], None]
WatchKey = tuple[str, str]

EVERYTHING: WatchKey = ("", "")


class Subscriber(Protocol):
    """One watch, whose `offer` the store calls with each change that can match it."""

    def offer(self, change: Change) -> None: ...


class Journal(Protocol):
    """Log that makes revisions durable before clients can read them."""

    def put(self, storage: str, record: Record) -> None: ...
    def remove(self, storage: str, key: Key, revision: int) -> None: ...


class Collection:
    """All objects of one storage, with the history of changes from which watches resume.

    `compacted` is the oldest revision from which the history is complete, `changed` the revision of the last
    change.
    """

    def __init__(self, storage: str, fields_of: FieldsOf, *, history: int, compacted: int) -> None:
        self.storage = storage
        self.fields_of = fields_of
        self.records: dict[Key, Record] = {}
        self.history: deque[Change] = deque()
        self.history_limit = history
        self.compacted = compacted
        self.changed = compacted
        self._keys: list[Key] | None = None
        self._subscribers: dict[WatchKey, set[Subscriber]] = {}

    def keys(self, namespace: str) -> list[Key]:
        """Return the object keys of one namespace (or of all with "") in etcd's order: namespace, then name."""
        if self._keys is None:
            self._keys = sorted(self.records)
        if not namespace:
            return self._keys
        low = bisect_left(self._keys, (namespace, ""))
        high = bisect_left(self._keys, (namespace + "\0", ""))
        return self._keys[low:high]

    def at(self, revision: int, current: int) -> dict[Key, Record]:
        """Return all records of the collection at a revision. Raise 410 if the history does not contain it."""
        if revision == current:
            return self.records
        self.require(revision)
        state = dict(self.records)
        for change in reversed(self.history):
            if change.revision <= revision:
                break
            if change.old is None:
                state.pop(change.key, None)
            else:
                state[change.key] = change.old
        return state

    def since(self, revision: int) -> list[Change]:
        """Return the collection's changes after a revision, oldest first. Raise 410 if the history does not contain
        all of them."""
        self.require(revision)
        changes: list[Change] = []
        for change in reversed(self.history):
            if change.revision <= revision:
                break
            changes.append(change)
        changes.reverse()
        return changes

    def require(self, revision: int) -> None:
        if revision < self.compacted:
            raise expired(f"too old resource version: {revision} ({self.compacted})")

    def forget_history(self, current: int) -> None:
        self.history.clear()
        self.compacted = current

    def apply(self, change: Change) -> None:
        """Apply a change to the records and the history; the caller publishes the change to watches."""
        self.changed = change.revision
        if change.new is None:
            del self.records[change.key]
            self._keys = None
        else:
            if change.old is None:
                self._keys = None
            self.records[change.key] = change.new
        self.history.append(change)
        if len(self.history) > self.history_limit:
            self.compacted = self.history.popleft().revision

    def restore(self, record: Record) -> None:
        self.records[record.key] = record
        self.changed = max(self.changed, record.revision)
        self._keys = None

    def subscribe(self, key: WatchKey, subscriber: Subscriber) -> None:
        self._subscribers.setdefault(key, set()).add(subscriber)

    def unsubscribe(self, key: WatchKey, subscriber: Subscriber) -> None:
        group = self._subscribers.get(key)
        if group is not None:
            group.discard(subscriber)
            if not group:
                del self._subscribers[key]

    def publish(self, change: Change) -> None:
        """Offer a change to those watches whose key can match it."""
        if not self._subscribers:
            return
        namespace, name = change.key
        keys = {EVERYTHING, ("namespace", namespace), ("name", name)}
        for record in (change.old, change.new):
            node = record.fields.get("spec.nodeName") if record is not None else None
            if node is not None:
                keys.add(("node", node))
        for key in keys:
            for subscriber in list(self._subscribers.get(key, ())):
                subscriber.offer(change)


class Store:
    """Collections with one revision counter, and indexes by uid and by owner."""

    def __init__(self, *, revision: int, history: int, journal: Journal | None = None) -> None:
        self.revision = revision
        self.journal = journal
        self.collections: dict[str, Collection] = {}
        self.by_uid: dict[str, tuple[str, Key]] = {}
        self.by_owner: dict[str, set[tuple[str, Key]]] = {}
        self._history = history
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Register a function to call at each change of the store; it must be fast and must not write."""
        self._listeners.append(listener)

    def open(self, storage: str, fields_of: FieldsOf) -> Collection:
        """Return the collection of a storage; create it if necessary."""
        collection = self.collections.get(storage)
        if collection is None:
            collection = Collection(storage, fields_of, history=self._history, compacted=self.revision)
            self.collections[storage] = collection
        else:
            collection.fields_of = fields_of
        return collection

    def put(self, collection: Collection, obj: Json, old: Record | None) -> Record:
        """Store an object (without kind and apiVersion) with the next revision."""
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        record = make_record(collection, obj, self.revision)
        if self.journal is not None:
            self.journal.put(collection.storage, record)
        self._index(collection.storage, old, record)
        self._commit(collection, Change(self.revision, old, record))
        return record

    def remove(self, collection: Collection, record: Record) -> Change:
        self.revision += 1
        change = Change(self.revision, record, None)
        if self.journal is not None:
            self.journal.remove(collection.storage, record.key, self.revision)
        self._index(collection.storage, record, None)
        self._commit(collection, change)
        return change

    def restore(self, collection: Collection, record: Record) -> None:
        """Restore a record from the data file, without history and without events."""
        collection.restore(record)
        self._index(collection.storage, None, record)

    def forget_history(self) -> None:
        """Make every earlier revision too old to watch or list from, like compaction."""
        for collection in self.collections.values():
            collection.forget_history(self.revision)

    def _commit(self, collection: Collection, change: Change) -> None:
        collection.apply(change)
        collection.publish(change)
        for listener in self._listeners:
            listener(collection, change)

    def _index(self, storage: str, old: Record | None, new: Record | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self.by_uid.pop(old.uid, None)
        if new is not None and (old is None or new.uid != old.uid):
            self.by_uid[new.uid] = (storage, new.key)
        before = old.owners if old is not None else ()
        after = new.owners if new is not None else ()
        if before == after:
            return
        record = new or old
        assert record is not None
        entry = (storage, record.key)
        for owner in before:
            group = self.by_owner.get(owner)
            if group is not None:
                group.discard(entry)
                if not group:
                    del self.by_owner[owner]
        for owner in after:
            self.by_owner.setdefault(owner, set()).add(entry)


def make_record(collection: Collection, obj: Json, revision: int) -> Record:
    meta = obj["metadata"]
    name = meta["name"]
    namespace = meta.get("namespace", "")
    fields = collection.fields_of(obj)
    fields["metadata.name"] = name
    fields["metadata.namespace"] = namespace
    owners = meta.get("ownerReferences")
    return Record(
        namespace=namespace,
        name=name,
        uid=meta["uid"],
        revision=revision,
        labels=meta.get("labels") or {},
        fields=fields,
        owners=tuple(owner["uid"] for owner in owners) if owners else (),
        terminating="deletionTimestamp" in meta,
        body=body_of(obj),
    )
