"""Field-by-field decoding of an object for which strict decoding failed.

Rules: null equals absent. A label or annotation that is not a string is converted to one (numbers as digits, lists
and maps as JSON), because hand-written manifests have such values. Any other value of the wrong type is replaced by
the default and reported as a `DecodingFault`; so is an unknown field of a `Closed` struct. A list item is never
dropped, so positions in messages remain correct.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


class DecodingFault(msgspec.Struct, frozen=True):
    """An unreadable field of an object. `path` is like `spec.containers[0].ports`. With `unknown`, only the field's
    name is unknown: everything beside it was decoded."""

    path: str
    message: str
    unknown: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def decode_leniently(kind: type[T], document: object) -> tuple[T, tuple[DecodingFault, ...]]:
    """Decode the readable part of `document` as a `kind`; return it with a fault for each unreadable field.

    Raises `msgspec.ValidationError` where the document is not an object with a `metadata.name`.
    """
    metadata = document.get("metadata") if isinstance(document, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not name:
        raise msgspec.ValidationError("not an object with metadata.name")
    faults: list[DecodingFault] = []
    return _struct(kind, document, "", faults), tuple(faults)


def _struct(kind: type[T], value: object, path: str, faults: list[DecodingFault]) -> T:
    if not isinstance(value, Mapping):
        faults.append(_fault(path, value, "an object"))
        value = {}
    hints, fields = _shape(kind)
    read: dict[str, Any] = {}
    for field in fields:
        content = value.get(field.encode_name)
        if content is None:
            continue
        here = f"{path}.{field.encode_name}" if path else field.encode_name
        result = _value(hints[field.name], content, here, faults)
        if result is not _UNREADABLE:
            read[field.name] = result
    if kind.__struct_config__.forbid_unknown_fields:
        known = {field.encode_name for field in fields}
        for name in sorted(name for name, content in value.items() if name not in known and content is not None):
            here = f"{path}.{name}" if path else name
            faults.append(DecodingFault(here, "this version of Phalanx does not know the field", unknown=True))
    return kind(**read)


@cache
def _shape(kind: type[msgspec.Struct]) -> tuple[dict[str, Any], tuple[msgspec.structs.FieldInfo, ...]]:
    """Return the type hints and fields of a struct; cached, since the lookup costs more than decoding an object."""
    return typing.get_type_hints(kind), msgspec.structs.fields(kind)


_UNREADABLE: Any = object()


def _value(hint: Any, value: object, path: str, faults: list[DecodingFault]) -> Any:
    """Return `value` converted to `hint`, or `_UNREADABLE`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        (hint,) = (argument for argument in arguments if argument is not types.NoneType)
        return _value(hint, value, path, faults)
    if hint is Any:
        return value
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint, value, path, faults)
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            return _unreadable(path, value, "a list", faults)
        items = (_value(arguments[0], item, f"{path}[{at}]", faults) for at, item in enumerate(value))
        return origin(item for item in items if item is not _UNREADABLE)
    if origin is dict:
        if not isinstance(value, Mapping):
            return _unreadable(path, value, "an object", faults)
        if arguments[1] is Any:
            return {key: content for key, content in value.items() if content is not None}
        if arguments[1] is str:
            return {key: _text(content) for key, content in value.items() if content is not None}
        entries = {
            key: _value(arguments[1], content, f"{path}.{key}", faults)
            for key, content in value.items()
            if content is not None
        }
        return {key: content for key, content in entries.items() if content is not _UNREADABLE}
    # For example, an int written as a string is accepted as long as no information is lost.
    try:
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError:
        return _unreadable(path, value, _NAMES.get(hint, "of the expected type"), faults)


_NAMES = {str: "a text", int: "a whole number", bool: "true or false"}


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _unreadable(path: str, value: object, wanted: str, faults: list[DecodingFault]) -> Any:
    faults.append(_fault(path, value, wanted))
    return _UNREADABLE


def _fault(path: str, value: object, wanted: str) -> DecodingFault:
    shown = msgspec.json.encode(value).decode()
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return DecodingFault(path, f"{shown} is not {wanted}")


def summary(faults: tuple[DecodingFault, ...]) -> str:
    """Return a message with the first three unreadable fields of an object and the number of further ones."""
    if not faults:
        return ""
    text = "; ".join(map(str, faults[:3]))
    return text if len(faults) <= 3 else f"{text}; and {len(faults) - 3} more"
