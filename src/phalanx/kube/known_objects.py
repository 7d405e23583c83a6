"""Objects that the sink of a reflector knows, by key: uid and version of each, in little memory."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from phalanx.kube.changes import Key

__all__ = ["KnownObject", "KnownObjects"]


class KnownObject(msgspec.Struct, gc=False):
    """Uid and resourceVersion (as a number, -1 if it is not numeric) of a known object."""

    uid: str
    version: int


class _Namespaces(dict[str, dict[str, KnownObject]]):
    def __missing__(self, namespace: str) -> dict[str, KnownObject]:
        names = self[namespace] = dict[str, KnownObject]()
        return names


class KnownObjects:
    """Known objects of one resource by namespace and name.

    A mapping by `Key` would store a tuple for each of several 100,000 objects. `namespaces[namespace][name]` finds,
    replaces or adds an object, without a call since every event does so; `pop` removes one.
    """

    def __init__(self) -> None:
        self.namespaces = _Namespaces()

    def __len__(self) -> int:
        return sum(map(len, self.namespaces.values()))

    def __iter__(self) -> Iterator[Key]:
        for namespace, names in self.namespaces.items():
            for name in names:
                yield namespace, name

    def get(self, key: Key) -> KnownObject | None:
        names = self.namespaces.get(key[0])
        return names.get(key[1]) if names is not None else None

    def pop(self, key: Key) -> KnownObject:
        """Remove a known object and return it."""
        names = self.namespaces[key[0]]
        known = names.pop(key[1])
        if not names:
            del self.namespaces[key[0]]
        return known

    def forget_versions(self) -> None:
        """Replace all versions by -1, which is older than any other."""
        for names in self.namespaces.values():
            for known in names.values():
                known.version = -1
