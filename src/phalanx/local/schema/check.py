"""The schema of a schema: what a CustomResourceDefinition may say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, Literal

from phalanx.local.schema.nodes import read_node
from phalanx.local.schema.patterns import PatternError, compile_pattern
from phalanx.local.schema.rules import compile_rule
from phalanx.local.schema.structural import unknown_in
from phalanx.local.schema.values import check_lists, check_value
from phalanx.local.validation.errors import FieldError, forbidden, invalid, not_supported, required

Level = Literal["root", "item", "field"]

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_META: Final = ("apiVersion", "kind", "metadata")
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
#: Keywords that exist in OpenAPI or JSON schema and may not be used.
_FORBIDDEN: Final = ("definitions", "dependencies", "deprecated", "discriminator", "id", "patternProperties")
_FORBIDDEN_LATER: Final = ("readOnly", "writeOnly", "xml", "$ref", "$schema", "additionalItems", "uniqueItems")
_NESTED_EMPTY: Final = (
    ("type", "must be empty to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
)


def check_schema(schema: Any, path: str = "openAPIV3Schema") -> list[FieldError]:
    """What is wrong with an ``openAPIV3Schema``: structure, keywords, defaults and rules.

    Field paths start with ``path``. A schema with complaints must not be stored; rules are looked at only when
    everything else is in order, as the API server does.
    """
    if not isinstance(schema, dict):
        return [required(path, "schemas are required")]
    errors: list[FieldError] = []
    _structure(errors, schema, path, "root")
    if not errors:
        _completeness(errors, schema, schema, path)
    if not errors:
        _defaults(errors, schema, path, forbid="")
    if not errors:
        _rules(errors, schema, path, root=True, blocked="")
    return errors


def _structure(errors: list[FieldError], schema: dict[str, Any], path: str, level: Level) -> None:
    _keywords(errors, schema, path)
    _type(errors, schema, path, level)
    _extensions(errors, schema, path)
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        errors.append(required(f"{path}.items", "must be specified"))
    extra = schema.get("additionalProperties")
    if extra is not None:
        where = f"{path}.additionalProperties"
        if level == "root":
            errors.append(forbidden(where, "must not be used at the root"))
        if schema.get("properties"):
            errors.append(forbidden(where, "additionalProperties and properties are mutual exclusive"))
        if schema.get("x-kubernetes-embedded-resource"):
            detail = "must not be used if x-kubernetes-embedded-resource is set"
            errors.append(forbidden(where, detail))
    _metadata(errors, schema, path, level)
    for where, sub, below in _children(schema, path):
        _structure(errors, sub, where, below)
    skip_any, skip_all = _int_or_string(schema)
    for where, sub in _junctors(schema, path):
        if skip_any and where.startswith(f"{path}.anyOf["):
            continue
        _nested(errors, sub, where, skip_any=skip_all and where == f"{path}.allOf[0]")


def _children(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any], Level]]:
    """The schemas below one, without those of the logical keywords."""
    for name, sub in (schema.get("properties") or {}).items():
        if isinstance(sub, dict):
            yield f"{path}.properties[{name}]", sub, "field"
    if isinstance(schema.get("additionalProperties"), dict):
        yield f"{path}.additionalProperties", schema["additionalProperties"], "field"
    if isinstance(schema.get("items"), dict):
        yield f"{path}.items", schema["items"], "item"


def _junctors(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, sub in enumerate(schema.get(keyword) or ()):
            if isinstance(sub, dict):
                yield f"{path}.{keyword}[{index}]", sub
    if isinstance(schema.get("not"), dict):
        yield f"{path}.not", schema["not"]


def _int_or_string(schema: dict[str, Any]) -> tuple[bool, bool]:
    """Whether the schema spells int-or-string in one of the two permitted ways (anyOf, or allOf of an anyOf)."""
    every = schema.get("allOf") or []
    return (
        schema.get("anyOf") == _INT_OR_STRING,
        bool(every) and isinstance(every[0], dict) and every[0].get("anyOf") == _INT_OR_STRING,
    )


def _keywords(errors: list[FieldError], schema: dict[str, Any], path: str) -> None:
    errors.extend(
        forbidden(f"{path}.{name}", f"{name} is not supported") for name in _FORBIDDEN if schema.get(name)
    )
    for name in _FORBIDDEN_LATER:
        if schema.get(name):
            detail = f"{name} is not supported"
            if name == "uniqueItems":
                detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            errors.append(forbidden(f"{path}.{name}", detail))
    if isinstance(schema.get("items"), list):
        errors.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
    text = schema.get("pattern")
    if text:
        try:
            compile_pattern(str(text))
        except PatternError as error:
            detail = f"must be a valid regular expression, but isn't: {error}"
            errors.append(invalid(f"{path}.pattern", text, detail))


def _type(errors: list[FieldError], schema: dict[str, Any], path: str, level: Level) -> None:
    kind, where = schema.get("type"), f"{path}.type"
    if kind and kind not in _TYPES:
        errors.append(not_supported(where, kind, _TYPES))
    if schema.get("x-kubernetes-embedded-resource") and kind != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        errors.append(invalid(where, kind, detail) if kind else required(where, detail))
    elif (
        not kind
        and not schema.get("x-kubernetes-int-or-string")
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        detail = {
            "root": "must not be empty at the root",
            "item": "must not be empty for specified array items",
            "field": "must not be empty for specified object fields",
        }[level]
        errors.append(required(where, detail))
    if level == "root" and kind and kind != "object":
        errors.append(invalid(where, kind, "must be object at the root"))


def _extensions(errors: list[FieldError], schema: dict[str, Any], path: str) -> None:
    kind = schema.get("type") or ""
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        where = f"{path}.x-kubernetes-preserve-unknown-fields"
        errors.append(invalid(where, False, "must be true or undefined"))
    if schema.get("x-kubernetes-int-or-string"):
        for name in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if schema.get(name):
                detail = "must be false if x-kubernetes-int-or-string is true"
                errors.append(invalid(f"{path}.{name}", True, detail))
        if kind:
            detail = "must be empty if x-kubernetes-int-or-string is true"
            errors.append(invalid(f"{path}.type", kind, detail))
    preserve = schema.get("x-kubernetes-preserve-unknown-fields")
    if schema.get("x-kubernetes-embedded-resource") and not preserve and not schema.get("properties"):
        errors.append(
            required(
                f"{path}.properties",
                "must not be empty if x-kubernetes-embedded-resource is true without "
                "x-kubernetes-preserve-unknown-fields",
            )
        )
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


def _metadata(errors: list[FieldError], schema: dict[str, Any], path: str, level: Level) -> None:
    """Metadata belongs to the server; a schema may restrict names, and nothing else."""
    if level != "root" and not schema.get("x-kubernetes-embedded-resource"):
        return
    properties = schema.get("properties") or {}
    for name in ("kind", "apiVersion"):
        sub = properties.get(name)
        if isinstance(sub, dict) and sub.get("type") != "string":
            where = f"{path}.properties[{name}].type"
            errors.append(invalid(where, sub.get("type") or "", "must be string"))
    meta = properties.get("metadata")
    if not isinstance(meta, dict):
        return
    where = f"{path}.properties[metadata]"
    if meta.get("type") != "object":
        errors.append(invalid(f"{where}.type", meta.get("type") or "", "must be object"))
    if level == "root":
        other = set(meta) - {"type", "properties", "description", "title"}
        unknown = set(meta.get("properties") or ()) - {"name", "generateName"}
        if other or unknown:
            detail = (
                "must not specify anything other than name and generateName, but metadata is implicitly specified"
            )
            errors.append(forbidden(where, detail))


def _nested(errors: list[FieldError], schema: dict[str, Any], path: str, *, skip_any: bool = False) -> None:
    """A schema below a logical keyword restricts values and may not declare structure."""
    errors.extend(forbidden(f"{path}.{name}", detail) for name, detail in _NESTED_EMPTY if schema.get(name))
    _keywords(errors, schema, path)
    if "metadata" in (schema.get("properties") or {}):
        detail = "must not be specified in a nested context"
        errors.append(forbidden(f"{path}.properties[metadata]", detail))
    for where, sub, _ in _children(schema, path):
        _nested(errors, sub, where)
    for where, sub in _junctors(schema, path):
        if not (skip_any and where.startswith(f"{path}.anyOf[")):
            _nested(errors, sub, where)


def _completeness(errors: list[FieldError], schema: dict[str, Any], top: dict[str, Any], path: str) -> None:
    """What a logical keyword restricts must be declared outside of it too."""
    for where, sub in _junctors(schema, path):
        _declared(errors, sub, schema, where, path)
    for where, sub, _ in _children(schema, path):
        _completeness(errors, sub, top, where)


def _declared(
    errors: list[FieldError], nested: dict[str, Any], outer: dict[str, Any], path: str, home: str
) -> None:
    for name, sub in (nested.get("properties") or {}).items():
        known = (outer.get("properties") or {}).get(name)
        where = f"{home}.properties[{name}]"
        if not isinstance(known, dict):
            errors.append(required(where, f"because it is defined in {path}.properties[{name}]"))
        elif isinstance(sub, dict):
            _declared(errors, sub, known, f"{path}.properties[{name}]", where)
    items = nested.get("items")
    if isinstance(items, dict):
        known = outer.get("items")
        if not isinstance(known, dict):
            errors.append(required(f"{home}.items", f"because it is defined in {path}.items"))
        else:
            _declared(errors, items, known, f"{path}.items", f"{home}.items")
    for where, sub in _junctors(nested, path):
        _declared(errors, sub, outer, where, home)


def _defaults(errors: list[FieldError], schema: dict[str, Any], path: str, *, forbid: str) -> None:
    """Defaults must satisfy their own schema, hold no unknown fields, and stay out of metadata."""
    if schema.get("default") is not None:
        where = f"{path}.default"
        if forbid:
            errors.append(forbidden(where, forbid))
        else:
            node = read_node({**schema, "default": None})
            check_value(errors, node, schema["default"], where)
            check_lists(errors, node, schema["default"], where)
            unknown = unknown_in(schema["default"], node)
            if unknown:
                detail = f"must not have unknown fields: {', '.join(unknown)}"
                errors.append(invalid(where, schema["default"], detail))
    root = path.count(".") == 0 and "[" not in path
    for where, sub, _ in _children(schema, path):
        below = forbid
        for name in _META:
            if root and where == f"{path}.properties[{name}]":
                below = f"must not be set in top-level {name}"
        _defaults(errors, sub, where, forbid=below)


def _rules(errors: list[FieldError], schema: dict[str, Any], path: str, *, root: bool, blocked: str) -> None:
    """Compiles every rule. ``blocked`` names the schema within which old values cannot be told."""
    rules = schema.get("x-kubernetes-validations") or ()
    node = read_node(schema) if rules else None
    for index, rule in enumerate(rules):
        where = f"{path}.x-kubernetes-validations[{index}]"
        if not isinstance(rule, dict):
            errors.append(invalid(where, rule, "must be an object"))
            continue
        if _words(errors, schema, rule, where):
            continue
        assert node is not None
        compiled = compile_rule(node, rule, root=root or bool(schema.get("x-kubernetes-embedded-resource")))
        if compiled.error:
            errors.append(invalid(f"{where}.rule", rule, compiled.error))
        if compiled.message_error:
            errors.append(invalid(f"{where}.messageExpression", rule, compiled.message_error))
        if compiled.transition and blocked:
            detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {blocked}"
            errors.append(invalid(f"{where}.rule", rule["rule"], detail))
        if not compiled.error and not compiled.transition and rule.get("optionalOldSelf") is not None:
            detail = "may not be set if oldSelf is not used in rule"
            errors.append(invalid(f"{where}.optionalOldSelf", rule["optionalOldSelf"], detail))
    for where, sub, level in _children(schema, path):
        below = blocked
        if level == "item" and schema.get("x-kubernetes-list-type") != "map":
            below = blocked or path
        if level == "field" and schema.get("x-kubernetes-map-type") == "atomic":
            below = blocked or path
        _rules(errors, sub, where, root=False, blocked=below)


def _words(errors: list[FieldError], schema: dict[str, Any], rule: dict[str, Any], where: str) -> bool:
    """Checks the texts around a rule; whether any of them is wrong."""
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
