"""Changes of API objects that a reflector passes to its sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

import msgspec

__all__ = ["Change", "Delete", "Key", "Malformed", "Sink", "Synced", "Upsert"]

T = TypeVar("T")

#: (namespace, name); the namespace of a cluster-scoped object is the empty string.
Key: TypeAlias = tuple[str, str]


class Upsert(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """New or changed object. Intermediate versions can be skipped. `version` is its resourceVersion as a number, -1
    if it is not numeric."""

    object: T
    raw: bytes
    key: Key
    uid: str
    version: int = -1


class Delete(msgspec.Struct, Generic[T], frozen=True):
    """Deletion of an object, or a change after which it does not match the selector. ``last`` is the last state
    that the server sent.

    ``last`` is None if the deletion was detected by a relist, or by a successor with another uid.
    """

    key: Key
    uid: str
    last: T | None = None


class Malformed(msgspec.Struct, frozen=True):
    """Existing object that cannot be decoded; a pod, for example, still uses its resources.

    ``key`` is ("", "") and ``uid`` "" if not even the name is readable.
    """

    key: Key
    uid: str
    error: str
    raw: bytes


class Synced(msgspec.Struct, frozen=True):
    """End of a complete list, the first and each later one: all existing objects were passed before."""


Change: TypeAlias = Upsert[T] | Delete[T] | Malformed | Synced
#: Called synchronously and in order. It must not block; an exception is logged, and the change is skipped.
Sink: TypeAlias = Callable[[Change[T]], None]
