"""Conversion of Kubernetes protobuf to the JSON form of an object.

https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding : four magic bytes and a
runtime.Unknown message whose `raw` is the object.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from phalanx.model.text.decoding import decode_json
from phalanx_local.clock import micro_timestamp, timestamp
from phalanx_local.objects import Json
from phalanx_local.wire.messages import Message, message

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_ZERO: Final = ("", 0, False)
_MAX_DEPTH: Final = 100


class ProtobufError(ValueError):
    """Error for bytes that are no Kubernetes object of a known kind."""


def read_protobuf(data: bytes) -> Json:
    """Decode a request body in Kubernetes protobuf to an object with kind and apiVersion. Raise ProtobufError for
    other bytes."""
    if not data.startswith(_MAGIC):
        raise ProtobufError("the body does not start with the magic bytes of Kubernetes protobuf")
    try:
        return _read(data[len(_MAGIC) :])
    except (IndexError, struct.error, UnicodeDecodeError, msgspec.DecodeError, RecursionError) as problem:
        raise ProtobufError(f"malformed protobuf: {problem}") from None


def _read(envelope: bytes) -> Json:
    api_version = kind = ""
    raw = b""
    for number, value in _fields(envelope):
        if number == 1 and isinstance(value, bytes):
            meta = {key: item.decode() for key, item in _fields(value) if isinstance(item, bytes)}
            api_version, kind = meta.get(1, ""), meta.get(2, "")
        elif number == 2 and isinstance(value, bytes):
            raw = value
    stem = _stem(api_version)
    fields = message(stem, kind)
    if fields is None:
        stem = "meta.v1"
        fields = message(stem, kind)
    if fields is None:
        raise ProtobufError(f"unknown protobuf message for {api_version}, Kind={kind}")
    return {"kind": kind, "apiVersion": api_version, **_message(raw, fields, stem, 0)}


def _stem(api_version: str) -> str:
    group, slash, version = api_version.rpartition("/")
    return f"{group.partition('.')[0]}.{version}" if slash else f"core.{version}"


def _message(data: bytes, fields: Message, stem: str, depth: int) -> Json:
    if depth > _MAX_DEPTH:
        raise ProtobufError("too deeply nested")
    obj: Json = {}
    for number, raw in _fields(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.name == "-":
            obj.update(_struct(raw, field.type, stem, depth))
        elif field.type.startswith("["):
            _extend(obj.setdefault(field.name, []), raw, field.type[1:-1], stem, depth)
        elif field.type.startswith("<"):
            key, value = _entry(raw, field.type[1:-1], stem, depth)
            obj.setdefault(field.name, {})[key] = value
        else:
            value = _value(raw, field.type, stem, depth)
            if value is not None and (field.keeps_zero or not _is_zero(value)):
                obj[field.name] = value
    return obj


def _is_zero(value: Any) -> bool:
    return not isinstance(value, (dict, list)) and value in _ZERO


def _extend(items: list[Any], raw: bytes | int, type_: str, stem: str, depth: int) -> None:
    if type_ in ("i", "b") and isinstance(raw, bytes):  # packed
        at = 0
        while at < len(raw):
            number, at = _varint(raw, at)
            items.append(_value(number, type_, stem, depth))
        return
    items.append(_value(raw, type_, stem, depth))


def _entry(raw: bytes | int, type_: str, stem: str, depth: int) -> tuple[str, Any]:
    key, value = "", None
    for number, item in _fields(_bytes(raw)):
        if number == 1:
            key = _bytes(item).decode()
        elif number == 2:
            value = _value(item, type_, stem, depth)
    if value is None:
        value = "" if type_ in ("s", "y") else {}
    return key, value


def _struct(raw: bytes | int, type_: str, stem: str, depth: int) -> Json:
    home, slash, name = type_.rpartition("/")
    home = home if slash else stem
    fields = message(home, name)
    if fields is None:
        raise ProtobufError(f"unknown message {type_}")
    return _message(_bytes(raw), fields, home, depth + 1)


def _value(raw: bytes | int, type_: str, stem: str, depth: int) -> Any:
    if type_ == "s":
        return _bytes(raw).decode()
    if type_ == "i":
        return _integer(raw)
    if type_ == "b":
        return bool(raw)
    if type_ == "f":
        return struct.unpack("<d", _bytes(raw))[0]
    if type_ == "y":
        return base64.b64encode(_bytes(raw)).decode()
    if type_ == "q":
        return _parts(raw).get(1, b"0").decode()
    if type_ in ("t", "u"):
        return _time(raw, micro=type_ == "u")
    if type_ == "x":
        parts = dict(_fields(_bytes(raw)))
        return _bytes(parts.get(3, b"")).decode() if parts.get(1) else _integer(parts.get(2, 0))
    if type_ == "d":
        return f"{_integer(dict(_fields(_bytes(raw))).get(1, 0)) / 1e9:g}s"
    if type_ == "r":
        return _embedded(_parts(raw).get(1, b""))
    if type_.startswith("("):
        items: list[Any] = []
        for number, item in _fields(_bytes(raw)):
            if number == 1:
                _extend(items, item, type_[2:-2], stem, depth)
        return items
    return _struct(raw, type_, stem, depth)


def _embedded(raw: bytes) -> Any:
    return decode_json(raw) if raw else None


def _time(raw: bytes | int, *, micro: bool) -> str | None:
    parts = dict(_fields(_bytes(raw)))
    if not parts:
        return None
    seconds, nanos = _integer(parts.get(1, 0)), _integer(parts.get(2, 0))
    if seconds == -62_135_596_800:  # year 1: Go's zero time
        return None
    return micro_timestamp(seconds + nanos / 1e9) if micro else timestamp(seconds)


def _parts(raw: bytes | int) -> dict[int, bytes]:
    return {number: _bytes(item) for number, item in _fields(_bytes(raw))}


def _bytes(raw: bytes | int) -> bytes:
    if isinstance(raw, int):
        raise ProtobufError("malformed protobuf: expected bytes, found a number")
    return raw


def _integer(raw: bytes | int) -> int:
    if not isinstance(raw, int):
        raise ProtobufError("malformed protobuf: expected a number, found bytes")
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ProtobufError(f"malformed protobuf: wire type {wire}")
        if at + size > len(data):
            raise ProtobufError("malformed protobuf: it ends too early")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & ((1 << 64) - 1), at
        shift += 7
        if shift > 63:
            raise ProtobufError("malformed protobuf: a number is too long")


__all__ = ["CONTENT_TYPE", "ProtobufError", "read_protobuf"]
