"""Stored objects and their changes, as bytes that are encoded once and shared by all readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from phalanx_local.objects import Json, decode, encode

if TYPE_CHECKING:
    from phalanx_local.registry.resources import Version

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"

Key = tuple[str, str]


class Record(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One revision of one stored object.

    `body` is the JSON object without its opening brace and without kind and apiVersion, because these depend on
    the version of the request. The fields for selectors and indexes are decoded.
    """

    namespace: str
    name: str
    uid: str
    revision: int
    labels: dict[str, str]
    fields: dict[str, str]
    owners: tuple[str, ...]
    terminating: bool
    body: bytes

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)

    def load(self) -> Json:
        """Decode a fresh copy of the object in the stored form, without kind and apiVersion."""
        obj: Json = decode(b"{" + self.body)
        return obj


def body_of(obj: Json) -> bytes:
    """Encode an object without kind and apiVersion to the bytes that a record stores."""
    return encode(obj)[1:]


def render(record: Record, version: Version) -> bytes:
    """Return a stored object as one JSON document in the given API version."""
    return version.head + view_body(record, version)


def view_body(record: Record, version: Version) -> bytes:
    """Return the body of a stored object in the given API version, without opening brace, kind and apiVersion."""
    if version.to_view is None:
        return record.body
    return body_of(version.to_view(record.load()))


def view(record: Record, version: Version) -> Json:
    """Return a fresh copy of a stored object in the given API version, with kind and apiVersion."""
    obj = record.load()
    if version.to_view is not None:
        obj = version.to_view(obj)
    return {"kind": version.type.kind, "apiVersion": version.api_version, **obj}


class Change:
    """One write to the store: the records before and after. `lines` contains the encoded watch events."""

    __slots__ = ("_lines", "_tombstone", "new", "old", "revision")

    def __init__(self, revision: int, old: Record | None, new: Record | None) -> None:
        self.revision = revision
        self.old = old
        self.new = new
        self._lines: dict[tuple[str, Version], bytes] = {}
        self._tombstone: Record | None = None

    @property
    def key(self) -> Key:
        record = self.new or self.old
        assert record is not None
        return record.key

    def shown(self, kind: str) -> Record:
        """Return the record of a watch event of this kind: for DELETED the last state, at the revision of this
        change.
        """
        if kind != DELETED:
            assert self.new is not None
            return self.new
        if self._tombstone is None:
            assert self.old is not None
            obj = self.old.load()
            obj["metadata"]["resourceVersion"] = str(self.revision)
            self._tombstone = msgspec.structs.replace(self.old, revision=self.revision, body=body_of(obj))
        return self._tombstone

    def line(self, kind: str, version: Version) -> bytes:
        """Return the watch event as a line of the stream, encoded once for all watchers of a version."""
        key = (kind, version)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = event_line(kind, render(self.shown(kind), version))
        return line


def event_line(kind: str, document: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), document)
