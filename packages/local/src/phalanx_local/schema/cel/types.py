"""Static types of CEL expressions, and types that a schema declares."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from phalanx_local.schema.cel import syntax
from phalanx_local.schema.nodes import ANYTHING, SchemaNode


@dataclass(frozen=True, slots=True, eq=False)
class Type:
    """Static CEL type: its kind (as in `values.kind_of`, or ``dyn``, ``object``) and its parts.

    ``item`` is the element type of a list, optional or map; ``fields`` are the fields of an object by CEL name,
    with their JSON name. ``convert`` names the conversion from a JSON value (timestamp, date, duration, bytes,
    double). ``unordered``: a set or map list, equal in any order; ``keys`` identify its items. ``key_kind`` is
    the kind of a map's keys. ``max_elements`` and ``min_size`` bound declared values: the maximum number of items
    or characters, and the minimum number of bytes of JSON.
    """

    kind: str
    item: Type | None = None
    fields: dict[str, tuple[str, Type]] = field(default_factory=dict)
    convert: str = ""
    unordered: bool = False
    keys: tuple[str, ...] = ()
    key_kind: str = "string"
    max_elements: int = 0
    min_size: int = 0

    def __str__(self) -> str:
        if self.kind in ("list", "optional_type"):
            return f"{self.kind}({self.item or DYN})"
        if self.kind == "map":
            return f"map({self.key_kind}, {self.item or DYN})"
        return _SHOWN.get(self.kind, self.kind)


Env = dict[str, Any]
Run = Callable[[Env], Any]
Scope = dict[str, Type]


@dataclass(slots=True)
class Notes:
    """Results of compiling a CEL expression: the variables that it reads, and the types of its nodes by id."""

    names: set[str] = field(default_factory=set)
    kinds: dict[int, Type] = field(default_factory=dict)


Compile = Callable[[syntax.Node, Scope, Notes], tuple[Run, Type]]

DYN: Final = Type("dyn")
#: Unknown type: items of an empty list, value of an empty optional. It is assignable to any type.
FREE: Final = Type("dyn")
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

QUANTITY: Final = Type("quantity")
URL: Final = Type("url")
IP: Final = Type("ip")
CIDR: Final = Type("cidr")
SEMVER: Final = Type("semver")
FORMAT: Final = Type("format")

_SHOWN: Final = {
    "null_type": "null",
    "quantity": "kubernetes.Quantity",
    "url": "kubernetes.URL",
    "ip": "net.IP",
    "cidr": "net.CIDR",
    "semver": "kubernetes.Semver",
    "format": "kubernetes.NamedFormat",
}
#: Kinds that accept null.
_NULLABLE: Final = frozenset(
    (
        *("object", "null_type", "duration", "timestamp", "optional_type"),
        *("quantity", "url", "ip", "cidr", "semver", "format"),
    )
)

#: Maximum size of a request in bytes, which bounds values without a bound in the schema.
REQUEST_LIMIT: Final = 3 * 1024 * 1024
_MAX_ELEMENTS: Final = REQUEST_LIMIT - 2
_NAME: Final = Type("string", min_size=2)
_META: Final = Type("object", fields={"name": ("name", _NAME), "generateName": ("generateName", _NAME)}, min_size=2)
#: Text formats with their own type. The sizes are those of the shortest and longest JSON.
_CONVERSIONS: Final = {
    "date": Type("timestamp", convert="date", max_elements=12, min_size=12),
    "date-time": Type("timestamp", convert="timestamp", max_elements=32, min_size=21),
    "duration": Type("duration", convert="duration", max_elements=32, min_size=3),
}
_SCALARS: Final = {
    "boolean": Type("bool", min_size=4),
    "number": Type("double", convert="double", min_size=1),
    "integer": Type("int", min_size=1),
}


def optional_of(item: Type) -> Type:
    """Return the CEL type of an optional value."""
    return Type("optional_type", item)


def list_of(item: Type) -> Type:
    """Return the CEL type of a list."""
    return Type("list", item)


def assignable(actual: Type, wanted: Type) -> bool:
    """Return whether a CEL value of type `actual` is valid for type `wanted`."""
    if "dyn" in (actual.kind, wanted.kind):
        return True
    if "null_type" in (actual.kind, wanted.kind):
        return actual.kind in _NULLABLE and wanted.kind in _NULLABLE
    if actual.kind != wanted.kind:
        return False
    if (
        actual.kind == "map"
        and actual.key_kind != wanted.key_kind
        and "dyn" not in (actual.key_kind, wanted.key_kind)
    ):
        return False
    if actual.kind in ("list", "map", "optional_type"):
        return assignable(actual.item or DYN, wanted.item or DYN)
    if actual.kind == "object" and actual is not wanted:
        return actual.fields.keys() == wanted.fields.keys()
    return True


def alike(left: Type, right: Type) -> bool:
    """Return whether values of two CEL types can be mixed in a list or map literal."""
    if left is FREE or right is FREE:
        return True
    return left.kind == right.kind and (left.kind == "null_type" or assignable(left, right))


def matched(wanted: str, actual: Type, bound: dict[str, Type]) -> bool:
    """Return whether a type matches an operand type of a CEL function.

    Forms of `wanted`: ``any``; kinds (``int|uint``); kinds with their elements (``list(string)``); ``T``, the same
    type in all operands.
    """
    if wanted == "any" or actual.kind == "dyn":
        return True
    if wanted == "T":
        return assignable(actual, bound.setdefault("T", actual))
    if wanted.endswith(")"):
        outer, _, inner = wanted[:-1].partition("(")
        return actual.kind == outer and matched(inner, actual.item or DYN, bound)
    return actual.kind in wanted.split("|")


def joined(left: Type, right: Type) -> Type:
    """Return the type of a CEL expression whose value has one of two types."""
    if left is FREE or right is FREE:
        return right if left is FREE else left
    if "null_type" in (left.kind, right.kind):
        return right if left.kind == "null_type" else left
    if left is right or left.kind == right.kind:
        if left.item is not None and right.item is not None:
            key_kind = left.key_kind if left.key_kind == right.key_kind else "dyn"
            return Type(left.kind, joined(left.item, right.item), key_kind=key_kind)
        return left
    return DYN


def declared(node: SchemaNode, *, root: bool = False) -> Type | None:
    """Return the CEL type of the values of a schema; None if validation rules cannot access these values.

    The root of a resource (also of an embedded one) always has ``apiVersion``, ``kind``, ``metadata.name`` and
    ``metadata.generateName``.
    """
    if node.int_or_string:
        limit = _MAX_ELEMENTS if node.max_length is None else max(node.max_length, 0) * 4
        return Type("dyn", max_elements=limit, min_size=1)
    if node.type == "array":
        element = declared(node.items, root=node.items.embedded) if node.items is not None else None
        return _declared_list(node, element) if element is not None else None
    if node.type == "object" or root:
        if node.additional is not None and node.additional is not ANYTHING and not root:
            value = declared(node.additional, root=node.additional.embedded)
            return _declared_map(node, value) if value is not None else None
        return _declared_object(node, root)
    if node.type == "string":
        return _CONVERSIONS.get(node.format) or _declared_text(node)
    return _SCALARS.get(node.type)


def _declared_list(node: SchemaNode, element: Type) -> Type:
    unordered = node.list_type in ("set", "map")
    limit = _MAX_ELEMENTS // (element.min_size + 1) if node.max_items is None else max(node.max_items, 0)
    return Type("list", element, unordered=unordered, keys=node.list_keys, max_elements=limit, min_size=2)


def _declared_map(node: SchemaNode, value: Type) -> Type:
    limit = _MAX_ELEMENTS // (value.min_size + 6) if node.max_properties is None else max(node.max_properties, 0)
    return Type("map", value, max_elements=limit, min_size=2)


def _declared_object(node: SchemaNode, root: bool) -> Type:
    fields: dict[str, tuple[str, Type]] = {}
    size = 2
    for name, sub in node.properties.items():
        kind = declared(sub, root=sub.embedded)
        if kind is None:
            continue
        word = escaped(name)
        if word:
            fields[word] = (name, kind)
        if name in syntax.RESERVED:
            # The parser accepts these words unescaped after a dot.
            fields[name] = (name, kind)
        if name in node.required and not sub.has_default:
            size += len(name) + kind.min_size + 4
    if root and not _declares_meta(node):
        fields.update({"apiVersion": ("apiVersion", _NAME), "kind": ("kind", _NAME)})
        fields["metadata"] = ("metadata", _META)
    return Type("object", fields=fields, min_size=size)


def _declared_text(node: SchemaNode) -> Type:
    if node.format == "byte":
        limit = _MAX_ELEMENTS if node.max_length is None else max(node.max_length, 0)
        return Type("bytes", convert="bytes", max_elements=limit, min_size=2)
    limit = _MAX_ELEMENTS
    if node.max_length is not None:
        # The limit counts characters of up to four bytes.
        limit = max(node.max_length, 0) * 4
    elif node.enum:
        limit = max(len(item.encode()) if isinstance(item, str) else 0 for item in node.enum)
    return Type("string", max_elements=limit, min_size=2)


def _declares_meta(node: SchemaNode) -> bool:
    """Return whether a schema declares all implicit metadata fields itself; then rules can access its other fields
    too."""
    meta = node.properties.get("metadata")
    wanted = [node.properties.get("kind"), node.properties.get("apiVersion")]
    if meta is None or meta.type != "object":
        return False
    wanted += [meta.properties.get("name"), meta.properties.get("generateName")]
    return all(sub is not None and sub.type == "string" for sub in wanted)


_UNSAFE: Final = re.compile(r"__|[-./]")
_SPELLED: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_WORDS: Final = syntax.RESERVED | {"true", "false", "null", "in"}


def escaped(name: str) -> str:
    """Return the name of a property in CEL expressions; "" if it cannot be written."""
    if not re.fullmatch(r"[A-Za-z_./-][A-Za-z0-9_./-]*", name):
        return ""
    if name in _WORDS:
        return f"__{name}__"
    return _UNSAFE.sub(lambda match: _SPELLED[match.group()], name)
