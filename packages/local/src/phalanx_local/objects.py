"""JSON objects as the server holds them, and the few ways in which every module reads them."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

Json: TypeAlias = dict[str, Any]

encode: Final = msgspec.json.Encoder().encode
_decoder: Final = msgspec.json.Decoder()


def decode(data: bytes | str) -> Any:
    """JSON bytes to plain Python values. Raises msgspec.DecodeError on malformed input."""
    return _decoder.decode(data)


def clone(value: Json) -> Json:
    """A deep copy of plain JSON; cheaper than copy.deepcopy because JSON has no cycles."""
    return {key: _clone(item) for key, item in value.items()}


def _clone(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clone(item) for item in value]
    return value


def mapping(value: Any) -> Json:
    """The value when it is a JSON object, else an empty one: absent, null and misshapen read alike."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """The value when it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def dig(value: Any, *path: str) -> Any:
    """The value at a path of object keys, or None where any step is absent."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def text(value: Any) -> str:
    """The value when it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


def metadata(obj: Json) -> Json:
    """The object's metadata, created in place when it is absent."""
    found = obj.get("metadata")
    if not isinstance(found, dict):
        found = obj["metadata"] = {}
    return found
