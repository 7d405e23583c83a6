"""What a reflector tells its sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

import msgspec

__all__ = ["Change", "Delete", "Key", "Malformed", "Sink", "Synced", "Upsert"]

T = TypeVar("T")

#: (namespace, name); the namespace of a cluster-scoped object is the empty string.
Key: TypeAlias = tuple[str, str]


class Upsert(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The object is there, in this state. States in between may have been skipped. `version` is its
    resourceVersion as a number, -1 where it is none."""

    object: T
    raw: bytes
    key: Key
    uid: str
    version: int = -1


class Delete(msgspec.Struct, Generic[T], frozen=True):
    """The object is gone, or no longer selected. ``last`` is its last state when the server told it.

    It is None when the deletion was found out by a new list, or by a successor with another uid.
    """

    key: Key
    uid: str
    last: T | None = None


class Malformed(msgspec.Struct, frozen=True):
    """The object is there and cannot be read. It still exists and still holds what it holds.

    ``key`` is ("", "") and ``uid`` "" when not even the name could be made out.
    """

    key: Key
    uid: str
    error: str
    raw: bytes


class Synced(msgspec.Struct, frozen=True):
    """Everything that exists has been told: after every complete list, the first and each later one."""


Change: TypeAlias = Upsert[T] | Delete[T] | Malformed | Synced
#: Called synchronously and in order. It must not block; what it raises is noted, and the change is passed over.
Sink: TypeAlias = Callable[[Change[T]], None]
