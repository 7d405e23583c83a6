"""OpenAPI schemas of built-in kinds, from the known fields in phalanx_local.validation."""

from __future__ import annotations

from typing import Final

from phalanx_local.objects import Json
from phalanx_local.registry.resources import Version
from phalanx_local.validation.kinds import kind_type
from phalanx_local.validation.types import FieldType

_SCALARS: Final[dict[str, Json]] = {
    "string": {"type": "string"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "bool": {"type": "boolean"},
    "float": {"type": "number", "format": "double"},
    "quantity": {"type": "string"},
    "intOrString": {"type": "string", "format": "int-or-string"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "duration": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
}
_ANY: Final[Json] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Shapes:
    """Component schemas of one OpenAPI document. The name of a nested type is that of its first occurrence."""

    def __init__(self, schemas: Json) -> None:
        self._schemas = schemas
        self._names: dict[int, str] = {}

    def of_kind(self, item: Version, name: str) -> Json:
        """Return the OpenAPI schema of a kind; a schema that allows all fields for kinds whose fields are not
        known."""
        description = f"{item.type.kind}, a resource of {item.api_version}."
        root = kind_type(item.type.group, item.type.kind, item.name)
        if root is None:
            return {"description": description, **_ANY}
        properties = {
            field: self._schema(member.type, name + field[:1].upper() + field[1:])
            for field, member in root.fields.items()
            if field not in ("apiVersion", "kind", "metadata")
        }
        return {"description": description, "type": "object", "properties": properties}

    def _schema(self, type_: FieldType, name: str) -> Json:
        if type_.form == "scalar":
            return dict(_SCALARS[type_.scalar])
        if type_.form == "list" and type_.element is not None:
            return {"type": "array", "items": self._schema(type_.element, name)}
        if type_.form == "map" and type_.element is not None:
            return {"type": "object", "additionalProperties": self._schema(type_.element, name)}
        if type_.form == "struct" and type_.fields:
            return {"allOf": [{"$ref": f"#/components/schemas/{self._struct(type_, name)}"}]}
        return dict(_ANY)

    def _struct(self, type_: FieldType, name: str) -> str:
        # Types are shared and can be recursive: the name is registered before the fields are read. Atomic
        # variants of a type share its `fields`, so their id identifies the type.
        known = self._names.get(id(type_.fields))
        if known is not None:
            return known
        self._names[id(type_.fields)] = name
        schema: Json = {"type": "object"}
        self._schemas[name] = schema
        schema["properties"] = {
            field: self._schema(member.type, name + field[:1].upper() + field[1:])
            for field, member in type_.fields.items()
        }
        return name
