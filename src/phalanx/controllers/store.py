"""Store of a controller: the newest state of each object of one kind, including the controller's own writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from phalanx.kube.changes import Change, Delete, Key, Malformed, Upsert
from phalanx.kube.wire import version_number


class Stored(Protocol):
    """Interface of a store's entries."""

    @property
    def uid(self) -> str: ...

    @property
    def resource_version(self) -> str: ...


S = TypeVar("S", bound=Stored)

# Responses arrive within seconds of the watch event; fewer objects than this are deleted in that time.
_MAX_REMEMBERED = 20_000


class ObjectStore(Generic[S]):
    """Store of objects by (namespace, name), and by one index.

    `read` decodes an entry from JSON, None for irrelevant objects. `index` returns the index group of an entry
    ("" for none). `changed` is called after each change with the old and the new entry.

    A controller stores the responses to its own writes, so that its next decision includes them even if the watch
    is behind. A watch event older than the stored version is ignored. Deleted objects are not restored: the
    response to a write can arrive after the watch event of the deletion, and the watch can be behind a deletion
    that the controller knows.
    """

    def __init__(
        self,
        read: Callable[[bytes], S | None],
        *,
        index: Callable[[S], str] = lambda entry: "",
        changed: Callable[[Key, S | None, S | None], None] = lambda key, old, new: None,
    ) -> None:
        self._read = read
        self._index = index
        self.changed = changed
        self._entries: dict[Key, S] = {}
        self._indexed: dict[str, dict[Key, S]] = {}
        # Uids of deleted objects: reported by the watch (the latest ones), and not yet reported.
        self._ended: dict[str, None] = {}
        self._ending: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> S | None:
        return self._entries.get(key)

    def items(self) -> Iterator[tuple[Key, S]]:
        return iter(list(self._entries.items()))

    def values(self) -> Iterator[S]:
        return iter(list(self._entries.values()))

    def of(self, group: str) -> Iterable[S]:
        """Return the entries of one index group."""
        return list(self._indexed.get(group, {}).values())

    def sink(self, change: Change[bytes]) -> None:
        """Apply a change from a reflector."""
        if isinstance(change, Upsert):
            if self._is_stale(change):
                return
            if change.uid not in self._ending:
                self._ended.pop(change.uid, None)
                self._put(key=change.key, new=self._read(change.raw))
        elif isinstance(change, Delete):
            self._ending.pop(change.uid, None)
            _remember(self._ended, change.uid)
            self._remove(change.key, change.uid)
        elif isinstance(change, Malformed) and change.key != ("", ""):
            self._remove(change.key)

    def _is_stale(self, change: Upsert[bytes]) -> bool:
        """Return whether the change is not newer than the stored entry; mostly it is the watch event of the
        controller's own write."""
        old = self._entries.get(change.key)
        if old is None or old.uid != change.uid:
            return False
        return 0 <= change.version <= version_number(old.resource_version)

    def put(self, key: Key, raw: bytes) -> None:
        """Store the response to the controller's write, unless the stored version is newer or the object is
        deleted.

        Raises msgspec.DecodeError for an unreadable object.
        """
        new = self._read(raw)
        if new is None or (new.uid not in self._ended and new.uid not in self._ending):
            self._put(key, new)

    def _put(self, key: Key, new: S | None) -> None:
        old = self._entries.get(key)
        if old is not None and new is not None and old.uid == new.uid:
            known, received = version_number(old.resource_version), version_number(new.resource_version)
            if known == received >= 0 or known > received >= 0:
                return
        self._set(key, old, new)

    def remove(self, key: Key, uid: str) -> None:
        """Remove the object with this uid after the API server has accepted its deletion."""
        if uid not in self._ended:
            _remember(self._ending, uid)
        self._remove(key, uid)

    def _remove(self, key: Key, uid: str = "") -> None:
        old = self._entries.get(key)
        if old is not None and uid in ("", old.uid):
            self._set(key, old, None)

    def _set(self, key: Key, old: S | None, new: S | None) -> None:
        if old is not None:
            group = self._index(old)
            members = self._indexed.get(group)
            if members is not None:
                members.pop(key, None)
                if not members:
                    del self._indexed[group]
        if new is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = new
            if group := self._index(new):
                self._indexed.setdefault(group, {})[key] = new
        if old is not None or new is not None:
            self.changed(key, old, new)


def _remember(uids: dict[str, None], uid: str) -> None:
    uids[uid] = None
    if len(uids) > _MAX_REMEMBERED:
        del uids[next(iter(uids))]
