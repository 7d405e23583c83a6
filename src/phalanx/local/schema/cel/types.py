"""Static types of expressions, and how a schema declares them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from phalanx.local.schema.cel.syntax import RESERVED
from phalanx.local.schema.nodes import Node


@dataclass(frozen=True, slots=True, eq=False)
class Type:
    """A type: its kind (as `values.kind_of` names it, or ``dyn``, ``object``), and what it is made of.

    ``item`` is the element type of a list, optional or map; ``fields`` are an object's, by CEL name, with their
    name in JSON. ``convert`` names how a JSON value becomes one of the type (timestamp, date, duration, bytes,
    double). ``unordered``: a set or map list, whose order does not count when comparing; ``keys`` identify its
    items. ``key_kind`` is the kind of a map's keys.
    """

    kind: str
    item: Type | None = None
    fields: dict[str, tuple[str, Type]] = field(default_factory=dict)
    convert: str = ""
    unordered: bool = False
    keys: tuple[str, ...] = ()
    key_kind: str = "string"

    def __str__(self) -> str:
        if self.kind in ("list", "optional_type"):
            return f"{self.kind}({self.item or DYN})"
        if self.kind == "map":
            return f"map({self.key_kind}, {self.item or DYN})"
        return self.kind


DYN: Final = Type("dyn")
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null_type")
TYPE: Final = Type("type")
TIMESTAMP: Final = Type("timestamp")
DURATION: Final = Type("duration")
LIST: Final = Type("list", DYN)
STRINGS: Final = Type("list", STRING)

_META: Final = Type("object", fields={"name": ("name", STRING), "generateName": ("generateName", STRING)})
_CONVERSIONS: Final = {
    "byte": Type("bytes", convert="bytes"),
    "date": Type("timestamp", convert="date"),
    "date-time": Type("timestamp", convert="timestamp"),
    "duration": Type("duration", convert="duration"),
}
_NUMBER: Final = Type("double", convert="double")


def optional_of(item: Type) -> Type:
    """The type of an optional value."""
    return Type("optional_type", item)


def list_of(item: Type) -> Type:
    """The type of a list."""
    return Type("list", item)


def assignable(found: Type, wanted: Type) -> bool:
    """Whether a value of one type may stand where another is wanted."""
    if "dyn" in (found.kind, wanted.kind):
        return True
    if found.kind != wanted.kind:
        return {found.kind, wanted.kind} == {"object", "map"} and not (found.fields and wanted.fields)
    if found.kind in ("list", "map", "optional_type"):
        return assignable(found.item or DYN, wanted.item or DYN)
    if found.kind == "object" and found is not wanted and found.fields and wanted.fields:
        return found.fields.keys() == wanted.fields.keys()
    return True


def joined(left: Type, right: Type) -> Type:
    """The type of an expression that has one of two types."""
    if left is right or left.kind == right.kind:
        if left.item is not None and right.item is not None:
            key_kind = left.key_kind if left.key_kind == right.key_kind else "dyn"
            return Type(left.kind, joined(left.item, right.item), key_kind=key_kind)
        return left
    return DYN


def declared(node: Node, *, root: bool = False) -> Type | None:
    """The type of values that a schema describes; None when rules cannot see them.

    At the root of a resource (also of an embedded one) ``apiVersion``, ``kind``, ``metadata.name`` and
    ``metadata.generateName`` are always there.
    """
    if node.int_or_string:
        return DYN
    if node.type == "array":
        element = declared(node.items, root=node.items.embedded) if node.items is not None else None
        if element is None:
            return None
        return Type("list", element, unordered=node.list_type in ("set", "map"), keys=node.list_keys)
    if node.type == "object" or root:
        if node.additional is not None and not node.properties and not root:
            value = declared(node.additional, root=node.additional.embedded)
            return Type("map", value) if value is not None else None
        fields: dict[str, tuple[str, Type]] = {}
        for name, sub in node.properties.items():
            kind = declared(sub, root=sub.embedded)
            word = escaped(name)
            if kind is not None and word:
                fields[word] = (name, kind)
        if root:
            fields.update({"apiVersion": ("apiVersion", STRING), "kind": ("kind", STRING)})
            fields["metadata"] = ("metadata", _META)
        return Type("object", fields=fields)
    if node.type == "string":
        return _CONVERSIONS.get(node.format, STRING)
    return {"boolean": BOOL, "number": _NUMBER, "integer": INT}.get(node.type)


_UNSAFE: Final = re.compile(r"__|[-./]")
_SPELLED: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_WORDS: Final = RESERVED | {"true", "false", "null", "in"}


def escaped(name: str) -> str:
    """A property's name in expressions; "" when it cannot be written."""
    if not re.fullmatch(r"[A-Za-z_./-][A-Za-z0-9_./-]*", name):
        return ""
    if name in _WORDS:
        return f"__{name}__"
    return _UNSAFE.sub(lambda match: _SPELLED[match.group()], name)
