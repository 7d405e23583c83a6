"""What a controller knows of one kind: the newest state of each object, its own writes included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from phalanx.kube.changes import Change, Delete, Key, Malformed, Upsert
from phalanx.kube.wire import version_number


class Stored(Protocol):
    """What an entry of a store tells of its object."""

    @property
    def uid(self) -> str: ...

    @property
    def resource_version(self) -> str: ...


S = TypeVar("S", bound=Stored)

# Answers come within seconds of the watch; more objects than these do not end meanwhile.
_REMEMBERED = 20_000


class ObjectStore(Generic[S]):
    """The objects by (namespace, name), and by one index.

    `read` makes an entry of JSON, None for what is of no interest. `index` names the group that an entry belongs to
    ("" for none). `changed` is told after each change, with what was there before and what is there now.

    A controller puts the answers to its own writes in: what it decides next then knows of them, though the watch is
    behind. A watch event that is older than what is known is passed over. What is gone stays gone: the answer to a
    deletion may come after the watch has told its end, and the watch may still tell of what the controller knows to
    be gone.
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
        # Uids whose end the watch has told, the last of them, and those whose end it has still to tell.
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
        """The entries of one group of the index."""
        return list(self._indexed.get(group, {}).values())

    def sink(self, change: Change[bytes]) -> None:
        """What a reflector tells."""
        if isinstance(change, Upsert):
            if self._knows(change):
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

    def _knows(self, change: Upsert[bytes]) -> bool:
        """Whether it tells nothing new: mostly it is the echo of a write whose answer is known."""
        old = self._entries.get(change.key)
        if old is None or old.uid != change.uid:
            return False
        return 0 <= change.version <= version_number(old.resource_version)

    def put(self, key: Key, raw: bytes) -> None:
        """The answer to a write: the object is there, in this state or a newer one, unless its end is known.

        Raises msgspec.DecodeError for what cannot be read.
        """
        new = self._read(raw)
        if new is None or (new.uid not in self._ended and new.uid not in self._ending):
            self._put(key, new)

    def _put(self, key: Key, new: S | None) -> None:
        old = self._entries.get(key)
        if old is not None and new is not None and old.uid == new.uid:
            known, told = version_number(old.resource_version), version_number(new.resource_version)
            if known == told >= 0 or known > told >= 0:
                return
        self._set(key, old, new)

    def remove(self, key: Key, uid: str) -> None:
        """The answer to a deletion: the object with this uid is gone."""
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
    if len(uids) > _REMEMBERED:
        del uids[next(iter(uids))]
