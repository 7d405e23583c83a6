"""Lists and watch events as JSON, split without decoding the objects inside."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from phalanx.kube.changes import Key
from phalanx.kube.errors import ConnectionLost
from phalanx.model.text.decoding import decode_json, decoded, parse_whole, parts_at, shallow

__all__ = [
    "Event",
    "ItemForm",
    "ListPage",
    "ObjectHead",
    "head_of",
    "read_event",
    "read_head",
    "read_page",
    "read_status",
    "version_number",
]

T = TypeVar("T")
F = TypeVar("F")


class ObjectHead(msgspec.Struct, frozen=True, gc=False):
    """Namespace, name, uid and resourceVersion of an object."""

    key: Key
    uid: str
    version: str


class ListPage(msgspec.Struct, Generic[T]):
    """One page of a list. `items` are raw JSON; `objects` replace them if all could be decoded at once.
    `remaining` is the number of objects on later pages, 0 if the server sent none."""

    items: list[msgspec.Raw]
    version: str
    token: str
    remaining: int = 0
    objects: list[T] = []

    def __len__(self) -> int:
        return len(self.items) + len(self.objects)


class Event(NamedTuple):
    """One watch event; ``raw`` is the JSON of its object."""

    type: str
    raw: bytes


class _ListMetadata(msgspec.Struct):
    version: str = msgspec.field(default="", name="resourceVersion")
    token: str | None = msgspec.field(default=None, name="continue")
    remaining: int | None = msgspec.field(default=None, name="remainingItemCount")


class _List(msgspec.Struct, Generic[T]):
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[T] | None = None


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    version: str | None = msgspec.field(default=None, name="resourceVersion")


class _WithMetadata(msgspec.Struct):
    metadata: _Metadata


class _Object(msgspec.Struct, Generic[T]):
    object: T


class _Framed(msgspec.Struct):
    type: str
    object: msgspec.Raw


_LIST = msgspec.json.Decoder(_List[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(_WithMetadata)
_FRAMED = msgspec.json.Decoder(_Framed)

_HEAD = ("namespace", "name", "uid", "resourceVersion")
_METADATA_KEY = re.compile(rb'"metadata"\s*:\s*\Z')

# API servers write the two fields in this order and without spaces, so a test of the prefix saves
# a scan of the object. Any other form is decoded properly.
_PREFIXES = tuple(
    (f'{{"type":"{kind}","object":{{'.encode(), len(f'{{"type":"{kind}","object":'), kind)
    for kind in ("MODIFIED", "ADDED", "DELETED")
)
# Prefixes of events with an existing object.
_PRESENT = (b'{"type":"MODIFIED","object":{', b'{"type":"ADDED","object":{')


def read_page(body: bytes) -> ListPage[Any]:
    """Split a list into its items. Raises ConnectionLost if the body is not a list, because it was damaged in
    transit."""
    try:
        page = _read_list(body)
    except msgspec.DecodeError as error:
        raise ConnectionLost(f"not a list: {error}") from error
    return _list_page(page.metadata, page.items or [], [])


class ItemForm(Generic[T]):
    """Decoder of list pages with all their items, in less than half the time of single objects.

    An item is decoded as a `kind`, and `read` makes a T of it. `read` returns None, or raises msgspec.DecodeError,
    for an item that has to be decoded alone.
    """

    def __init__(self, kind: type[F], read: Callable[[F], T | None]) -> None:
        self._read = read
        self._decode: Callable[[bytes], _List[F]] = msgspec.json.Decoder(_List[kind]).decode  # type: ignore[valid-type]
        self._decode_event: Callable[[bytes], _Object[F]] = msgspec.json.Decoder(_Object[kind]).decode  # type: ignore[valid-type]

    def page(self, body: bytes) -> ListPage[T] | None:
        """Decode a page of a list; return None if one of its items has to be decoded alone."""
        try:
            page = self._decode(body)
            forms = page.items or []
            objects = [obj for form in forms if (obj := self._read(form)) is not None]
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return None
        return _list_page(page.metadata, [], objects) if len(objects) == len(forms) else None

    def event(self, line: bytes) -> T | None:
        """Decode the object of a watch event. Return None for an event of another type than ADDED and MODIFIED, and
        for an object that has to be decoded alone."""
        if not line.startswith(_PRESENT):
            return None
        try:
            return self._read(self._decode_event(line).object)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return None


def _list_page(metadata: _ListMetadata, items: list[msgspec.Raw], objects: list[T]) -> ListPage[T]:
    return ListPage(items, metadata.version, metadata.token or "", max(0, metadata.remaining or 0), objects)


def read_event(line: bytes) -> Event:
    """Split a watch event into its type and its object. Raises ConnectionLost if the line is not an event, because
    it was damaged in transit."""
    for prefix, start, kind in _PREFIXES:
        if line.startswith(prefix):
            if line.endswith(b"}}"):
                return Event(kind, line[start:-1])
            break
    try:
        framed = _read_framed(line)
    except msgspec.DecodeError as error:
        raise ConnectionLost(f"not a watch event: {error}") from error
    return Event(framed.type, bytes(framed.object))


def _read_list(body: bytes) -> _List[msgspec.Raw]:
    try:
        return _LIST.decode(body)
    except RecursionError:
        # One item is nested too deeply for any decoder; the other items must stay readable.
        page = _LIST.decode(shallow(body, 3))
        page.items = [msgspec.Raw(body[begin:end]) for begin, end, around in parts_at(body, 3) if around == b"["]
        return page


def _read_framed(line: bytes) -> _Framed:
    try:
        return _FRAMED.decode(line)
    except RecursionError:
        framed = _FRAMED.decode(shallow(line, 2))
        framed.object = msgspec.Raw(b"".join(line[begin:end] for begin, end, _ in parts_at(line, 2)))
        return framed


def read_status(raw: bytes) -> dict[str, Any]:
    """Return the Status object of a watch's ERROR event; an empty dict if it is not an object."""
    try:
        status = decode_json(raw)
    except msgspec.DecodeError:
        status = None
    return status if isinstance(status, dict) else {}


def read_head(raw: bytes) -> ObjectHead:
    """Return namespace, name, uid and version of an object's JSON, even of an undecodable object; missing fields
    are empty strings."""
    try:
        metadata = decoded(_OBJECT.decode, raw).metadata
        return ObjectHead((metadata.namespace or "", metadata.name), metadata.uid or "", metadata.version or "")
    except msgspec.DecodeError:
        pass
    return _metadata_head(_metadata(raw))


def head_of(obj: object, raw: bytes) -> ObjectHead:
    """Return namespace, name, uid and version from a decoded object's ``metadata`` if it has the usual form, else
    from the JSON."""
    metadata: Any = getattr(obj, "metadata", None)
    if metadata is not None:
        try:
            version = getattr(metadata, "resource_version", None) or getattr(metadata, "resourceVersion", None)
            if version and metadata.uid:
                return ObjectHead((metadata.namespace or "", metadata.name), metadata.uid, version)
        except AttributeError:
            pass
    elif isinstance(obj, dict):
        return _dict_head(obj)
    return read_head(raw)


def _dict_head(obj: object) -> ObjectHead:
    return _metadata_head(obj.get("metadata") if isinstance(obj, dict) else None)


def _metadata(raw: bytes) -> object:
    """Decode the metadata of an object alone, so that undecodable values beside or below them do no harm."""
    for begin, end, _ in parts_at(raw, 2):
        if _METADATA_KEY.search(raw, max(0, begin - 64), begin):
            try:
                return decode_json(shallow(raw[begin:end], 2))
            except msgspec.DecodeError:
                return None
    return None


def _metadata_head(metadata: object) -> ObjectHead:
    if not isinstance(metadata, dict):
        return ObjectHead(("", ""), "", "")
    name, uid, version = metadata.get("name"), metadata.get("uid"), metadata.get("resourceVersion")
    namespace = metadata.get("namespace", "")
    if type(name) is type(uid) is type(version) is type(namespace) is str:  # as in all objects of a real server
        return ObjectHead((namespace, name), uid, version)
    namespace, name, uid, version = [
        value if isinstance(value := metadata.get(field), str) else "" for field in _HEAD
    ]
    return ObjectHead((namespace, name), uid, version)


def version_number(version: str) -> int:
    """Return a resourceVersion as a number, -1 if it is not numeric. Comparable within one resource only."""
    if len(version) < 19 and version.isascii() and version.isdecimal():
        return int(version)  # the form that API servers send
    number = parse_whole(version, 0)
    return number if number is not None else -1
