"""Tree of an OpenAPI schema, which defaulting, pruning and validation walk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from phalanx.model.text.patterns import Pattern, PatternError, compile_pattern
from phalanx_local.schema.formats import NUMBERS, Format, checked_format, format_check


@dataclass(slots=True, eq=False)
class SchemaNode:
    """One OpenAPI schema object. Absent keywords are None or empty; ``additional`` is None if unknown fields are
    pruned.

    ``rules`` are the raw ``x-kubernetes-validations``; ``active``: a value can violate this subtree;
    ``defaulting``: the subtree contains a default.
    """

    type: str = ""
    nullable: bool = False
    int_or_string: bool = False
    preserve: bool = False
    embedded: bool = False
    properties: dict[str, SchemaNode] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    additional: SchemaNode | None = None
    items: SchemaNode | None = None
    has_default: bool = False
    default: Any = None
    enum: tuple[Any, ...] | None = None
    pattern: Pattern | None = None
    pattern_text: str = ""
    pattern_error: str = ""
    format: str = ""
    checked_format: str = ""
    check_format: Format | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    all_of: tuple[SchemaNode, ...] = ()
    any_of: tuple[SchemaNode, ...] = ()
    one_of: tuple[SchemaNode, ...] = ()
    none_of: SchemaNode | None = None
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    rules: tuple[dict[str, Any], ...] = ()
    defaulting: bool = False


#: Node of ``additionalProperties: true``.
ANYTHING: Final = SchemaNode(preserve=True)

_NUMBERS: Final = {
    "minimum": "minimum",
    "maximum": "maximum",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_items",
    "maxItems": "max_items",
    "minProperties": "min_properties",
    "maxProperties": "max_properties",
}


def read_node(schema: Any) -> SchemaNode:
    """Return the tree of an OpenAPI schema (a JSON object; ``true`` is a schema without restrictions)."""
    if not isinstance(schema, dict):
        return SchemaNode(preserve=True)
    node = SchemaNode(
        type=schema.get("type") or "",
        nullable=bool(schema.get("nullable")),
        int_or_string=bool(schema.get("x-kubernetes-int-or-string")),
        preserve=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
        embedded=bool(schema.get("x-kubernetes-embedded-resource")),
        properties={name: read_node(sub) for name, sub in (schema.get("properties") or {}).items()},
        required=tuple(schema.get("required") or ()),
        items=read_node(schema["items"]) if isinstance(schema.get("items"), dict) else None,
        has_default=schema.get("default") is not None,
        default=schema.get("default"),
        enum=tuple(schema["enum"]) if schema.get("enum") else None,
        format=schema.get("format") or "",
        exclusive_minimum=bool(schema.get("exclusiveMinimum")),
        exclusive_maximum=bool(schema.get("exclusiveMaximum")),
        all_of=tuple(read_node(sub) for sub in schema.get("allOf") or ()),
        any_of=tuple(read_node(sub) for sub in schema.get("anyOf") or ()),
        one_of=tuple(read_node(sub) for sub in schema.get("oneOf") or ()),
        none_of=read_node(schema["not"]) if isinstance(schema.get("not"), dict) else None,
        list_type=schema.get("x-kubernetes-list-type") or "",
        list_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
        rules=tuple(schema.get("x-kubernetes-validations") or ()),
    )
    for keyword, name in _NUMBERS.items():
        if schema.get(keyword) is not None:
            setattr(node, name, schema[keyword])
    if isinstance(schema.get("pattern"), str) and schema["pattern"]:
        node.pattern_text = schema["pattern"]
        try:
            node.pattern = compile_pattern(node.pattern_text)
        except PatternError as error:
            # check_schema rejects such a schema; an old stored one must not block the rest of the schema.
            node.pattern_error = str(error)
    node.checked_format = checked_format(node.type, node.format)
    if node.checked_format and node.type not in NUMBERS:
        node.check_format = format_check(node.checked_format)
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        node.additional = read_node(extra)
    elif extra is True:
        node.additional = ANYTHING
    node.defaulting = (
        any(sub.has_default or sub.defaulting for sub in node.properties.values())
        or (node.additional is not None and (node.additional.has_default or node.additional.defaulting))
        or (node.items is not None and (node.items.has_default or node.items.defaulting))
    )
    return node
