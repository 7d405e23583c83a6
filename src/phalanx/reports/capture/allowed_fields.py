"""Objects cut down to the fields that are allowed: whatever is not named here does not leave the cluster."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

#: What may stay below a field: "scalar" a text, number or truth value, "scalars" any nesting of them, or by key
#: ("*" for any) what may stay below that. What is said of a list holds for each of its elements.
Allowed = str | Mapping[str, "Allowed"]
SCALAR: Final = "scalar"
SCALARS: Final = "scalars"
_NOTHING: Final = object()


def keep_allowed(value: object, allowed: Allowed) -> Any:
    """The part of a document that is allowed; an object of which nothing is allowed stays as an empty one."""
    found = _keep(value, allowed)
    return {} if found is _NOTHING else found


def _keep(value: object, allowed: Allowed) -> object:
    if isinstance(value, list):
        elements = (_keep(each, allowed) for each in value)
        return [each for each in elements if each is not _NOTHING]
    if isinstance(value, Mapping):
        if allowed == SCALARS:
            return {key: kept for key, each in value.items() if (kept := _keep(each, SCALARS)) is not _NOTHING}
        if isinstance(allowed, str):
            return _NOTHING
        found: dict[str, object] = {}
        for key, each in value.items():
            below = allowed.get(key, allowed.get("*"))
            kept = _keep(each, below) if below is not None else _NOTHING
            if kept is not _NOTHING:
                found[key] = kept
        return found
    return value if isinstance(allowed, str) else _NOTHING


def paths(*stated: str) -> dict[str, Allowed]:
    """From paths such as `spec.tasks.replicas`; one that ends in `.**` allows everything that is below."""
    tree: dict[str, Any] = {}
    for path in " ".join(stated).split():
        steps = path.removesuffix(".**").split(".")
        inner = tree
        for step in steps[:-1]:
            inner = inner.setdefault(step, {})
        inner[steps[-1]] = SCALARS if path.endswith(".**") else SCALAR
    return tree


def fields_of(struct: type[msgspec.Struct], others: Mapping[str, Allowed] | None = None) -> dict[str, Allowed]:
    """What a decoder's struct reads. `others` are, by struct and name on the wire (`Struct.fieldName`), fields that
    it leaves to somebody else to read, or of which less is allowed."""
    stated = others or {}
    hints = typing.get_type_hints(struct)
    found: dict[str, Allowed] = {}
    for field in msgspec.structs.fields(struct):
        own = stated.get(f"{struct.__name__}.{field.encode_name}")
        found[field.encode_name] = own if own is not None else _of_type(hints[field.name], stated)
    return found


def _of_type(hint: Any, others: Mapping[str, Allowed]) -> Allowed:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (each for each in typing.get_args(hint) if each is not type(None))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return _of_type(arguments[0], others)
    if origin is dict:
        return {"*": _of_type(arguments[1], others)}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return fields_of(hint, others)
    return SCALAR


def with_annotations(document: dict[str, Any], allowed: Iterable[str]) -> dict[str, Any]:
    """The same with the annotations of these keys alone; none where nothing is left of them."""
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    if isinstance(metadata, Mapping) and isinstance(annotations, Mapping):
        kept = {key: annotations[key] for key in annotations if key in allowed}
        document["metadata"] = {**metadata, "annotations": kept} if kept else _without(metadata, "annotations")
    return document


def _without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}
