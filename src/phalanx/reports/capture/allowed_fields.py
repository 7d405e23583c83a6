"""Reduction of API objects to allowed fields for a capture. A field without a rule is never captured."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

#: Rule for a field: "scalar" allows a string, number or boolean, "scalars" any nesting of scalars. A mapping holds
#: rules by key ("*" for any). The rule of a list applies to each of its elements.
Allowed = str | Mapping[str, "Allowed"]
SCALAR: Final = "scalar"
SCALARS: Final = "scalars"
_NOTHING: Final = object()


def keep_allowed(value: object, allowed: Allowed) -> Any:
    """Return the part of an object that rules allow; an object without allowed fields becomes {}."""
    allowed_part = _keep(value, allowed)
    return {} if allowed_part is _NOTHING else allowed_part


def _keep(value: object, allowed: Allowed) -> object:
    if isinstance(value, list):
        elements = (_keep(field, allowed) for field in value)
        return [field for field in elements if field is not _NOTHING]
    if isinstance(value, Mapping):
        if allowed == SCALARS:
            return {key: kept for key, field in value.items() if (kept := _keep(field, SCALARS)) is not _NOTHING}
        if isinstance(allowed, str):
            return _NOTHING
        fields: dict[str, object] = {}
        for key, field in value.items():
            below = allowed.get(key, allowed.get("*"))
            kept = _keep(field, below) if below is not None else _NOTHING
            if kept is not _NOTHING:
                fields[key] = kept
        return fields
    return value if isinstance(allowed, str) else _NOTHING


def paths(*stated: str) -> dict[str, Allowed]:
    """Return rules that allow the fields at paths such as `spec.tasks.replicas`; an ending `.**` allows everything
    below the field."""
    tree: dict[str, Any] = {}
    for path in " ".join(stated).split():
        steps = path.removesuffix(".**").split(".")
        inner = tree
        for step in steps[:-1]:
            inner = inner.setdefault(step, {})
        inner[steps[-1]] = SCALARS if path.endswith(".**") else SCALAR
    return tree


def fields_of(struct: type[msgspec.Struct], overrides: Mapping[str, Allowed] | None = None) -> dict[str, Allowed]:
    """Return the rules that allow the fields that a decoder's struct reads.

    `overrides` are rules by struct and wire name (`Struct.fieldName`) for fields that other code reads or that need
    a narrower rule.
    """
    stated = overrides or {}
    hints = typing.get_type_hints(struct)
    rules: dict[str, Allowed] = {}
    for field in msgspec.structs.fields(struct):
        own = stated.get(f"{struct.__name__}.{field.encode_name}")
        rules[field.encode_name] = own if own is not None else _of_type(hints[field.name], stated)
    return rules


def _of_type(hint: Any, overrides: Mapping[str, Allowed]) -> Allowed:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (argument for argument in typing.get_args(hint) if argument is not type(None))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return _of_type(arguments[0], overrides)
    if origin is dict:
        return {"*": _of_type(arguments[1], overrides)}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return fields_of(hint, overrides)
    return SCALAR


def with_annotations(document: dict[str, Any], allowed: Iterable[str]) -> dict[str, Any]:
    """Return the object with only these annotations; without the field `annotations` if none remains."""
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    if isinstance(metadata, Mapping) and isinstance(annotations, Mapping):
        kept = {key: annotations[key] for key in annotations if key in allowed}
        document["metadata"] = {**metadata, "annotations": kept} if kept else _without(metadata, "annotations")
    return document


def _without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}
