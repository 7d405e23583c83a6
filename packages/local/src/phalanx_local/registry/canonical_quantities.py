"""Canonical form of quantities, as the real server stores them: `2000m` is stored as `2`, 1 as `"1"`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from phalanx.model.text.quantity import read_quantity
from phalanx_local.objects import Json
from phalanx_local.validation.kinds import kind_type
from phalanx_local.validation.types import FieldType

Rewrite = Callable[[Any], Any]


def spell_quantities(group: str, kind: str, version: str, obj: Json) -> None:
    """Rewrite the quantities of a well-formed built-in object in place."""
    rewrite = _of_kind(group, kind, version)
    if rewrite is not None:
        rewrite(obj)


@cache
def _of_kind(group: str, kind: str, version: str) -> Rewrite | None:
    root = kind_type(group, kind, version)
    return _compile(root, set()) if root is not None else None


def _compile(type_: FieldType, above: set[int]) -> Rewrite | None:
    """Return the function that rewrites the quantities in a type's values; None if the values contain no
    quantities.

    Recursive types (JSON schemas) contain no quantities, so recursion ends at their second occurrence.
    """
    if type_.form == "scalar":
        return _spell if type_.scalar == "quantity" else None
    if type_.form in ("list", "map"):
        below = _compile(type_.element, above) if type_.element is not None else None
        if below is None:
            return None
        return _items(below) if type_.form == "list" else _values(below)
    if type_.form != "struct" or id(type_.fields) in above:
        return None
    inside = above | {id(type_.fields)}
    parts = {
        name: rewrite
        for name, member in type_.fields.items()
        if (rewrite := _compile(member.type, inside)) is not None
    }
    return _fields(parts) if parts else None


def _spell(value: Any) -> Any:
    return str(read_quantity(value))


def _items(below: Rewrite) -> Rewrite:
    def rewrite(value: Any) -> Any:
        if isinstance(value, list):
            value[:] = [below(item) if item is not None else None for item in value]
        return value

    return rewrite


def _values(below: Rewrite) -> Rewrite:
    def rewrite(value: Any) -> Any:
        if isinstance(value, dict):
            for key, item in value.items():
                if item is not None:
                    value[key] = below(item)
        return value

    return rewrite


def _fields(parts: dict[str, Rewrite]) -> Rewrite:
    def rewrite(value: Any) -> Any:
        if isinstance(value, dict):
            for name, below in parts.items():
                item = value.get(name)
                if item is not None:
                    value[name] = below(item)
        return value

    return rewrite
