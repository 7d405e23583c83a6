"""JSON objects as the server stores them, and functions to read them."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

Json: TypeAlias = dict[str, Any]

encode: Final = msgspec.json.Encoder().encode
_decoder: Final = msgspec.json.Decoder()


def decode(data: bytes | str) -> Any:
    """Decode JSON bytes to plain Python values. Raise msgspec.DecodeError on malformed input."""
    return _decoder.decode(data)


def clone(value: Json) -> Json:
    """Return a deep copy of plain JSON; faster than copy.deepcopy because JSON has no cycles."""
    return {key: _clone(item) for key, item in value.items()}


def _clone(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clone(item) for item in value]
    return value


def mapping(value: Any) -> Json:
    """Return the value if it is a JSON object, else an empty object (for absent, null and misshapen values)."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """Return the value if it is a JSON array, else an empty list."""
    return value if isinstance(value, list) else []


def dig(value: Any, *path: str) -> Any:
    """Return the value at a path of object keys; None if a key of the path is absent."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def text(value: Any) -> str:
    """Return the value if it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


def metadata(obj: Json) -> Json:
    """Return the object's metadata; create it in place if it is absent."""
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        meta = obj["metadata"] = {}
    return meta
