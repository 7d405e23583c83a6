"""Merge rules of a kind, from the known fields of built-in kinds or from the OpenAPI schema of a custom
resource."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from phalanx_local.validation.kinds import kind_type, struct_type
from phalanx_local.validation.types import ABSENT, ANY, STRING, FieldType, StructField


@dataclass(frozen=True, slots=True)
class ListSchema:
    """Merge rules of an object's lists and maps, and the fields that each endpoint owns.

    ``root`` is the type of the object. ``has_status``: ``status`` is written through its own endpoint, and the
    main endpoint never owns it. ``status_resets`` are the paths that the status endpoint never owns.
    """

    root: FieldType
    has_status: bool = False
    status_resets: tuple[tuple[str, ...], ...] = (("spec",),)

    def resets(self, subresource: str) -> tuple[tuple[str, ...], ...]:
        """Return the paths of fields that an endpoint ignores; managers cannot own these fields through the
        endpoint."""
        if not self.has_status:
            return ()
        if subresource == "":
            return (("status",),)
        return self.status_resets if subresource == "status" else ()


@cache
def builtin_lists(group: str, kind: str, version: str = "") -> ListSchema:
    """Return the merge rules of a built-in kind; for an unknown kind maps merge and lists are atomic.

    Without a version, the preferred version that serves the kind applies.
    """
    root = kind_type(group, kind, version)
    if root is None:
        return UNTYPED
    resets: tuple[tuple[str, ...], ...] = (("spec",),)
    if (group, kind) == ("", "Pod"):
        resets = (("spec",), ("metadata", "deletionTimestamp"), ("metadata", "ownerReferences"))
    elif group in ("apps", "batch") or (group, kind) == ("", "ReplicationController"):
        resets = (("spec",), ("metadata", "labels")) if kind == "Deployment" else (("spec",),)
    return ListSchema(root, "status" in root.fields, resets)


def lists_from_schema(schema: dict[str, Any], *, has_status: bool = False) -> ListSchema:
    """Return the merge rules of a custom resource.

    ``schema`` is the ``openAPIV3Schema`` of the version: ``x-kubernetes-list-type`` (atomic by default),
    ``x-kubernetes-list-map-keys`` and the defaults of those keys, ``x-kubernetes-map-type``. ``has_status``: the
    version has the status subresource.
    """
    root = _from_schema(schema)
    if root.form != "struct":
        root = FieldType("struct", element=ANY)
    # metadata, apiVersion and kind belong to the server; the schema cannot change their merge rules.
    root.fields["metadata"] = StructField(struct_type("meta.v1", "ObjectMeta"))
    root.fields["apiVersion"] = StructField(STRING)
    root.fields["kind"] = StructField(STRING)
    return ListSchema(root, has_status, (("metadata",), ("spec",)))


def _from_schema(schema: dict[str, Any]) -> FieldType:
    if schema.get("x-kubernetes-int-or-string"):
        return FieldType("scalar", scalar="intOrString")
    kind = schema.get("type")
    open_ended = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if kind == "array":
        items = schema.get("items")
        element = _from_schema(items) if isinstance(items, dict) else ANY
        list_type = schema.get("x-kubernetes-list-type", "atomic")
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if list_type == "map" else ()
        properties = items.get("properties") or {} if isinstance(items, dict) else {}
        return FieldType(
            "list",
            element=element,
            atomic=list_type == "atomic" or (list_type == "map" and not keys),
            keys=keys,
            key_defaults={key: properties[key]["default"] for key in keys if "default" in properties.get(key, {})},
            is_set=list_type == "set",
        )
    if kind == "object" or "properties" in schema or schema.get("x-kubernetes-embedded-resource"):
        properties = schema.get("properties")
        atomic = schema.get("x-kubernetes-map-type") == "atomic"
        extra = schema.get("additionalProperties")
        if isinstance(properties, dict) and properties:
            return FieldType(
                "struct",
                fields={name: StructField(_from_schema(sub), ABSENT) for name, sub in properties.items()},
                element=ANY if open_ended else None,
                atomic=atomic,
            )
        element = _from_schema(extra) if isinstance(extra, dict) else ANY
        return FieldType("map", element=element, atomic=atomic)
    if isinstance(kind, str):
        scalar = {"integer": "int64", "number": "float", "boolean": "bool"}.get(kind, "string")
        return FieldType("scalar", scalar=scalar)
    return ANY


#: Merge rules of objects of an unknown kind: only metadata has rules.
UNTYPED: Final = ListSchema(
    FieldType(
        "struct",
        fields={
            "apiVersion": StructField(STRING),
            "kind": StructField(STRING),
            "metadata": StructField(struct_type("meta.v1", "ObjectMeta")),
        },
        element=ANY,
    )
)
