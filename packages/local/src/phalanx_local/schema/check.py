"""Validation of the schema in a CustomResourceDefinition."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Final

from phalanx_local.schema.cel import REQUEST_LIMIT, declared
from phalanx_local.schema.cel.costs import estimated_cost
from phalanx_local.schema.cel.ranges import LIMIT
from phalanx_local.schema.nodes import read_node
from phalanx_local.schema.rules import check_rules, compile_rule, compile_rules
from phalanx_local.schema.structural import unknown_in
from phalanx_local.schema.structure import Schema, children, junctors, structure_errors
from phalanx_local.schema.values import NOTHING, check_lists, check_value
from phalanx_local.validation.errors import FieldError, forbidden, invalid, not_supported, required

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_META: Final = ("apiVersion", "kind", "metadata")
#: Keywords of JSON schema that are forbidden.
_FORBIDDEN: Final = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
#: Keywords that the root can use if the status subresource is enabled.
_AT_ROOT: Final = (
    *("description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"),
    *("maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required"),
    *("items", "properties", "externalDocs", "example", "x-kubernetes-preserve-unknown-fields"),
    "x-kubernetes-validations",
)
#: Maximum estimated cost of one rule, and of all rules of a schema together.
_RULE_LIMIT: Final = 10_000_000
_SCHEMA_LIMIT: Final = 100_000_000


def check_schema(schema: Any, path: str = "openAPIV3Schema", *, has_status: bool = False) -> list[FieldError]:
    """Return the errors of an ``openAPIV3Schema``: structure, keywords, defaults and validation rules.

    Field paths start with ``path``. ``has_status``: the status subresource is enabled, which forbids more
    keywords at the root. A schema with errors must not be stored. Rules are checked only if structure and
    defaults are valid, and only in parts of the schema without other errors.
    """
    if not isinstance(schema, dict):
        return [required(path, "schemas are required")]
    errors: list[FieldError] = []
    if has_status:
        _status_root(errors, schema, path)
    if schema.get("nullable"):
        errors.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    structural = structure_errors(schema, path)
    if not structural:
        _defaults(structural, schema, path, root=True)
    errors += structural
    walk = _Walk(rules=not structural)
    walk.visit(schema, _Place(path, root=True))
    errors += walk.errors + walk.rule_errors
    if walk.total > _SCHEMA_LIMIT:
        dearest = sorted(
            (item for item in walk.costs if item[0] >= _SCHEMA_LIMIT // 100), key=lambda item: -item[0]
        )
        detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        errors += [forbidden(where, detail) for _, where in dearest[:4]]
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        errors.append(forbidden(path, _too_dear(name, walk.total, _SCHEMA_LIMIT)))
    if not errors and schema.get("$schema"):
        errors.append(invalid(path, "", "OpenAPIV3Schema 'schema' is not supported"))
    return errors


def _status_root(errors: list[FieldError], schema: Schema, path: str) -> None:
    if schema.get("type") and schema["type"] != "object":
        detail = (
            'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        )
        errors.append(invalid(f"{path}.type", schema["type"], detail))
    elif any(value and name not in _AT_ROOT for name, value in schema.items()):
        shown = " ".join(_AT_ROOT)
        detail = f"only [{shown}] fields are allowed at the root of the schema if the status subresource is enabled"
        errors.append(FieldError(path, "FieldValueInvalid", f"Invalid value: {detail}"))


def _defaults(errors: list[FieldError], schema: Schema, path: str, *, root: bool = False) -> None:
    """Check that default values in a schema satisfy the schema and its rules, and have no unknown fields."""
    default = schema.get("default")
    if default is not None:
        where = f"{path}.default"
        node = read_node({**schema, "default": None})
        default_errors: list[FieldError] = []
        check_value(default_errors, node, default, where)
        check_lists(default_errors, node, default, where)
        unknown = unknown_in(default, node)
        if unknown:
            default_errors.append(invalid(where, default, f"must not have unknown fields: {', '.join(unknown)}"))
        ruled = compile_rules(node, root=root or node.embedded) if not default_errors else None
        if ruled is not None:
            # The default must pass both as a new and as an unchanged value.
            check_rules(default_errors, ruled, default, where, default)
            if not default_errors:
                check_rules(default_errors, ruled, default, where, NOTHING)
        errors.extend(default_errors)
    for where, sub, _ in children(schema, path):
        if sub is not schema.get("additionalProperties"):
            _defaults(errors, sub, where)


@dataclass(frozen=True, slots=True)
class _Place:
    """Position of a subschema during the check of a schema.

    ``blocked`` is the outermost schema that has no correlation with old values; ``no_default`` is the reason why
    defaults are forbidden; ``count`` is the maximum number of values of the schema (None: limited only by the
    size of a request).
    """

    path: str
    root: bool = False
    in_meta: bool = False
    blocked: str = ""
    no_default: str = ""
    nested: bool = False
    count: int | None = 1


@dataclass(slots=True)
class _Walk:
    """Check of one schema in one pass; errors of validation rules are separate from all other errors."""

    rules: bool
    errors: list[FieldError] = field(default_factory=list)
    rule_errors: list[FieldError] = field(default_factory=list)
    total: int = 0
    costs: list[tuple[int, str]] = field(default_factory=list)

    def visit(self, schema: Schema, place: _Place) -> None:
        before = len(self.errors)
        path = place.path
        _keywords(self.errors, schema, place)
        for where, sub, level in children(schema, path):
            self.visit(sub, self._below(schema, sub, place, where, level))
        for where, sub in junctors(schema, path):
            self.visit(sub, replace(place, path=where, root=False, nested=True))
        _extensions(self.errors, schema, path)
        rules = schema.get("x-kubernetes-validations") or ()
        for index, rule in enumerate(rules):
            where = f"{path}.x-kubernetes-validations[{index}]"
            if isinstance(rule, dict):
                _words(self.errors, schema, rule, where)
            else:
                self.errors.append(invalid(where, rule, "must be an object"))
        if rules and self.rules and not place.nested and len(self.errors) == before:
            self._compile(schema, place)

    def _below(self, schema: Schema, sub: Schema, place: _Place, where: str, level: str) -> _Place:
        blocked, in_meta, no_default = place.blocked, place.in_meta, place.no_default
        count: int | None = place.count
        if level == "item":
            if schema.get("x-kubernetes-list-type") != "map":
                blocked = blocked or place.path
            count = _times(count, schema.get("maxItems"))
        elif sub is schema.get("additionalProperties"):
            if in_meta:
                no_default = "inside additionalProperties applying to object metadata"
            count = _times(count, schema.get("maxProperties"))
        else:
            if schema.get("x-kubernetes-map-type") not in (None, "granular", "atomic"):
                blocked = blocked or place.path
            name = where[len(place.path) + len(".properties[") : -1]
            if name in _META and (place.root or schema.get("x-kubernetes-embedded-resource")):
                in_meta = True
                no_default = f"in top-level {name}" if place.root else no_default
        return _Place(where, False, in_meta, blocked, no_default, place.nested, count)

    def _compile(self, schema: Schema, place: _Place) -> None:
        node = read_node(schema)
        root = place.root or node.embedded
        kind = declared(node, root=root)
        # Without a bound in the schema, the size of a request limits the number of values.
        count = place.count
        if count is None and kind is not None:
            count = REQUEST_LIMIT // (kind.min_size + 1)
        for index, rule in enumerate(schema["x-kubernetes-validations"]):
            where = f"{place.path}.x-kubernetes-validations[{index}]"
            compiled = compile_rule(node, rule, root=root)
            if kind is not None and compiled.program is not None:
                cost = min(estimated_cost(compiled.program, kind) * (count or 0), LIMIT)
                self._observe("estimated rule cost", f"{where}.rule", cost)
            if compiled.error:
                self.rule_errors.append(invalid(f"{where}.rule", rule, compiled.error))
            if compiled.message_error:
                self.rule_errors.append(invalid(f"{where}.messageExpression", rule, compiled.message_error))
            elif kind is not None and compiled.message_program is not None:
                cost = estimated_cost(compiled.message_program, kind)
                self._observe("estimated messageExpression cost", f"{where}.messageExpression", cost)
            if compiled.transition:
                if place.blocked:
                    detail = (
                        f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.blocked}"
                    )
                    self.rule_errors.append(invalid(f"{where}.rule", rule["rule"], detail))
            elif rule.get("optionalOldSelf") is not None:
                detail = "may not be set if oldSelf is not used in rule"
                self.rule_errors.append(invalid(f"{where}.optionalOldSelf", rule["optionalOldSelf"], detail))

    def _observe(self, name: str, where: str, cost: int) -> None:
        if cost > _RULE_LIMIT:
            self.rule_errors.append(forbidden(where, _too_dear(name, cost, _RULE_LIMIT)))
        self.total = min(self.total + cost, LIMIT)
        self.costs.append((cost, where))


def _times(count: int | None, limit: Any) -> int | None:
    if count is None or not isinstance(limit, int):
        return None
    return min(count * max(limit, 0), LIMIT)


def _too_dear(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{name} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, "
        "and maxLength where arrays, maps, and strings are declared)"
    )


def _keywords(errors: list[FieldError], schema: Schema, place: _Place) -> None:
    path, kind = place.path, schema.get("type")
    if kind and kind not in _TYPES:
        errors.append(not_supported(f"{path}.type", kind, _TYPES))
    if schema.get("default") is not None and place.no_default:
        errors.append(forbidden(f"{path}.default", f"must not be set {place.no_default}"))
    errors.extend(
        forbidden(f"{path}.{name}", f"{name} is not supported") for name in _FORBIDDEN if schema.get(name)
    )
    if kind == "null":
        errors.append(forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative"))
    if isinstance(schema.get("items"), list):
        errors.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
    if place.in_meta and schema.get("x-kubernetes-embedded-resource"):
        detail = "must not be used inside of resource meta"
        errors.append(forbidden(f"{path}.x-kubernetes-embedded-resource", detail))
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.append(forbidden(f"{path}.uniqueItems", detail))
    if schema.get("additionalProperties") not in (None, True) and schema.get("properties"):
        detail = "additionalProperties and properties are mutual exclusive"
        errors.append(forbidden(f"{path}.additionalProperties", detail))


def _extensions(errors: list[FieldError], schema: Schema, path: str) -> None:
    kind = schema.get("type") or ""
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        where = f"{path}.x-kubernetes-preserve-unknown-fields"
        errors.append(invalid(where, False, "must be true or undefined"))
    map_type = schema.get("x-kubernetes-map-type")
    if map_type is not None:
        if kind != "object":
            detail = "must be object if x-kubernetes-map-type is specified"
            where = f"{path}.type"
            errors.append(invalid(where, kind, detail) if kind else required(where, detail))
        if map_type not in ("atomic", "granular"):
            errors.append(not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular")))
    _list_type(errors, schema, path, kind)


def _list_type(errors: list[FieldError], schema: dict[str, Any], path: str, kind: str) -> None:
    list_type, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    where = f"{path}.x-kubernetes-list-type"
    items = schema.get("items") if isinstance(schema.get("items"), dict) else {}
    assert isinstance(items, dict)
    if list_type is not None:
        if kind != "array":
            detail = "must be array if x-kubernetes-list-type is specified"
            errors.append(invalid(f"{path}.type", kind, detail) if kind else required(f"{path}.type", detail))
        if list_type not in ("atomic", "map", "set"):
            errors.append(not_supported(where, list_type, ("atomic", "map", "set")))
    if list_type in ("set", "map") and items.get("nullable"):
        detail = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        errors.append(forbidden(f"{path}.items.nullable", detail))
    if list_type == "set":
        inner = items.get("x-kubernetes-list-type")
        if items.get("type") == "array" and inner not in (None, "atomic"):
            detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
            errors.append(invalid(f"{path}.items.x-kubernetes-list-type", inner, detail))
        if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
            detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
            where = f"{path}.items.x-kubernetes-map-type"
            errors.append(invalid(where, items.get("x-kubernetes-map-type"), detail))
    if keys and list_type != "map":
        detail = "must be map if x-kubernetes-list-map-keys is non-empty"
        errors.append(required(where, detail) if list_type is None else invalid(where, list_type, detail))
    if list_type != "map":
        return
    where = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        errors.append(required(where, "must not be empty if x-kubernetes-list-type is map"))
    if items.get("type") != "object":
        detail = "must be object if parent array's x-kubernetes-list-type is map"
        errors.append(invalid(f"{path}.items.type", items.get("type") or "", detail))
        return
    properties = items.get("properties") or {}
    for key in keys:
        sub = properties.get(key)
        if sub is None:
            errors.append(invalid(where, keys, "entries must all be names of item properties"))
        elif sub.get("type") in ("array", "object"):
            detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            errors.append(invalid(f"{path}.items.properties[{key}].type", sub["type"], detail))
        elif sub.get("default") is None and key not in (items.get("required") or ()):
            detail = (
                "this property is in x-kubernetes-list-map-keys, "
                "so it must have a default or be a required property"
            )
            errors.append(required(f"{path}.items.properties[{key}].default", detail))
        if sub is not None and sub.get("nullable"):
            detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            errors.append(forbidden(f"{path}.items.properties[{key}].nullable", detail))
    if len(set(keys)) != len(keys):
        errors.append(invalid(where, keys, "must not contain duplicate entries"))


def _words(errors: list[FieldError], schema: dict[str, Any], rule: dict[str, Any], where: str) -> bool:
    """Check the texts of an x-kubernetes-validations rule. Return whether any of them is invalid."""
    before = len(errors)
    text, message = str(rule.get("rule") or "").strip(), str(rule.get("message") or "").strip()
    if not text:
        errors.append(required(f"{where}.rule", "rule is not specified"))
    elif rule.get("message") and not message:
        errors.append(invalid(f"{where}.message", rule["message"], "must be non-empty if specified"))
    elif "\n" in message:
        errors.append(invalid(f"{where}.message", rule["message"], "must not contain line breaks"))
    elif "\n" in text and not message:
        detail = "message must be specified if rule contains line breaks"
        errors.append(required(f"{where}.message", detail))
    if rule.get("messageExpression") and not str(rule["messageExpression"]).strip():
        detail = "messageExpression must be non-empty if specified"
        errors.append(required(f"{where}.messageExpression", detail))
    if rule.get("reason") is not None and rule["reason"] not in _REASONS:
        errors.append(not_supported(f"{where}.reason", rule["reason"], _REASONS))
    field = rule.get("fieldPath")
    if field and not _path_exists(schema, str(field)):
        errors.append(invalid(f"{where}.fieldPath", field, "must be a valid path"))
    return len(errors) > before


_STEP: Final = re.compile(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]")


def _path_exists(schema: dict[str, Any], path: str) -> bool:
    position = 0
    current: Any = schema
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or not isinstance(current, dict):
            return False
        name = match[1] if match[1] is not None else match[2].replace("\\'", "'")
        properties = current.get("properties")
        if properties:
            current = properties.get(name)
        elif isinstance(current.get("additionalProperties"), dict):
            current = current["additionalProperties"]
        else:
            return False
        if current is None:
            return False
        position = match.end()
    return position > 0
