"""Rules of structural schemas: each field has a type, and logical keywords only restrict declared fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

from phalanx.model.text.patterns import PatternError, compile_pattern
from phalanx_local.validation.errors import FieldError, forbidden, invalid, required

Schema = dict[str, Any]
Level = Literal["root", "item", "field"]

_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
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


def structure_errors(schema: Schema, path: str) -> list[FieldError]:
    """Return the errors that make a schema non-structural."""
    errors: list[FieldError] = []
    _structure(errors, schema, path, "root")
    for where, sub in junctors(schema, path):
        # Only at the root must a restricted field also be declared.
        _declared(errors, sub, schema, where, path)
    return errors


def children(schema: Schema, path: str) -> Iterator[tuple[str, Schema, Level]]:
    """Yield the child schemas of a schema, without the schemas of logical keywords (allOf, anyOf, oneOf, not)."""
    for name, sub in (schema.get("properties") or {}).items():
        if isinstance(sub, dict):
            yield f"{path}.properties[{name}]", sub, "field"
    if isinstance(schema.get("additionalProperties"), dict):
        yield f"{path}.additionalProperties", schema["additionalProperties"], "field"
    if isinstance(schema.get("items"), dict):
        yield f"{path}.items", schema["items"], "item"


def junctors(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Yield the schemas of a schema's logical keywords (allOf, anyOf, oneOf, not)."""
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, sub in enumerate(schema.get(keyword) or ()):
            if isinstance(sub, dict):
                yield f"{path}.{keyword}[{index}]", sub
    if isinstance(schema.get("not"), dict):
        yield f"{path}.not", schema["not"]


def _structure(errors: list[FieldError], schema: Schema, path: str, level: Level) -> None:
    _type(errors, schema, path, level)
    _extensions(errors, schema, path)
    _pattern(errors, schema, path)
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        errors.append(required(f"{path}.items", "must be specified"))
    if schema.get("additionalProperties") is not None:
        where = f"{path}.additionalProperties"
        if level == "root":
            errors.append(forbidden(where, "must not be used at the root"))
        if schema.get("x-kubernetes-embedded-resource"):
            detail = "must not be used if x-kubernetes-embedded-resource is set"
            errors.append(forbidden(where, detail))
    _metadata(errors, schema, path, level)
    for where, sub, below in children(schema, path):
        _structure(errors, sub, where, below)
    skip_any, skip_all = _int_or_string(schema)
    for where, sub in junctors(schema, path):
        if skip_any and where.startswith(f"{path}.anyOf["):
            continue
        _nested(errors, sub, where, skip_any=skip_all and where == f"{path}.allOf[0]")


def _int_or_string(schema: Schema) -> tuple[bool, bool]:
    """Return whether the schema has the first or the second form of int-or-string (anyOf, or allOf of an anyOf)."""
    every = schema.get("allOf") or []
    return (
        schema.get("anyOf") == _INT_OR_STRING,
        bool(every) and isinstance(every[0], dict) and every[0].get("anyOf") == _INT_OR_STRING,
    )


def _type(errors: list[FieldError], schema: Schema, path: str, level: Level) -> None:
    kind, where = schema.get("type"), f"{path}.type"
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


def _extensions(errors: list[FieldError], schema: Schema, path: str) -> None:
    preserve = schema.get("x-kubernetes-preserve-unknown-fields")
    if schema.get("x-kubernetes-int-or-string"):
        for name in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if schema.get(name):
                detail = "must be false if x-kubernetes-int-or-string is true"
                errors.append(invalid(f"{path}.{name}", True, detail))
    if schema.get("x-kubernetes-embedded-resource") and not preserve and not schema.get("properties"):
        errors.append(
            required(
                f"{path}.properties",
                "must not be empty if x-kubernetes-embedded-resource is true without "
                "x-kubernetes-preserve-unknown-fields",
            )
        )


def _pattern(errors: list[FieldError], schema: Schema, path: str) -> None:
    text = schema.get("pattern")
    if text:
        try:
            compile_pattern(str(text))
        except PatternError as error:
            detail = f"must be a valid regular expression, but isn't: {error}"
            errors.append(invalid(f"{path}.pattern", text, detail))


def _metadata(errors: list[FieldError], schema: Schema, path: str, level: Level) -> None:
    """Check the schema of metadata: metadata belongs to the server, and a schema can restrict only its names."""
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
        other = {name for name, value in meta.items() if value} - {"type", "properties", "default"}
        unknown = set(meta.get("properties") or ()) - {"name", "generateName"}
        if other or unknown:
            detail = (
                "must not specify anything other than name and generateName, but metadata is implicitly specified"
            )
            errors.append(forbidden(where, detail))


def _nested(errors: list[FieldError], schema: Schema, path: str, *, skip_any: bool = False) -> None:
    """Check a schema below a logical keyword: such a schema restricts values and must not declare structure."""
    errors.extend(forbidden(f"{path}.{name}", detail) for name, detail in _NESTED_EMPTY if schema.get(name))
    _pattern(errors, schema, path)
    if "metadata" in (schema.get("properties") or {}):
        detail = "must not be specified in a nested context"
        errors.append(forbidden(f"{path}.properties[metadata]", detail))
    for where, sub, _ in children(schema, path):
        if sub is not schema.get("additionalProperties"):
            _nested(errors, sub, where)
    for where, sub in junctors(schema, path):
        if not (skip_any and where.startswith(f"{path}.anyOf[")):
            _nested(errors, sub, where)


def _declared(errors: list[FieldError], nested: Schema, outer: Schema, path: str, home: str) -> None:
    """Check that all fields restricted by a logical keyword are declared outside of it too."""
    for where, sub in junctors(nested, path):
        _declared(errors, sub, outer, where, home)
    items = nested.get("items")
    if isinstance(items, dict):
        known = outer.get("items")
        if not isinstance(known, dict):
            errors.append(required(f"{home}.items", f"because it is defined in {path}.items"))
        else:
            _declared(errors, items, known, f"{path}.items", f"{home}.items")
    for name, sub in (nested.get("properties") or {}).items():
        known = (outer.get("properties") or {}).get(name)
        where = f"{home}.properties[{name}]"
        if not isinstance(known, dict):
            errors.append(required(where, f"because it is defined in {path}.properties[{name}]"))
        elif isinstance(sub, dict):
            _declared(errors, sub, known, f"{path}.properties[{name}]", where)
