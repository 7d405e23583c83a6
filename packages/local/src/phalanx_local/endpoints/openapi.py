"""OpenAPI v3 documents for create, apply, edit and explain of kubectl.

kubectl relies on server-side validation only if the PATCH path of a kind has a `fieldValidation` parameter, and
reads component schemas for `explain`. Request bodies are not described: kubectl then uses its built-in merge
keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from phalanx_local.endpoints.openapi_shapes import Shapes
from phalanx_local.objects import Json, encode
from phalanx_local.registry.resources import Registry, Version

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"


def index(registry: Registry, forwarded: Mapping[str, list[str]]) -> Json:
    """Return the document of GET /openapi/v3: one document per group version, with a hash of its content.
    `forwarded` are groups that APIServices serve."""
    paths: Json = {}
    for group, versions in registry.groups().items():
        for version in versions:
            where = f"apis/{group}/{version}" if group else f"api/{version}"
            digest = hashlib.sha256(encode(document(registry, group, version))).hexdigest()[:32].upper()
            paths[where] = {"serverRelativeURL": f"/openapi/v3/{where}?hash={digest}"}
    for group, versions in forwarded.items():
        for version in versions:
            where = f"apis/{group}/{version}"
            paths[where] = {"serverRelativeURL": f"/openapi/v3/{where}"}
    return {"paths": paths}


def document(registry: Registry, group: str, version: str) -> Json:
    """Return the document of GET /openapi/v3/apis/GROUP/VERSION."""
    paths: Json = {}
    schemas: Json = {f"{_META}.ObjectMeta": _object_meta()}
    shapes = Shapes(schemas)
    for item in registry.served(group, version):
        path = _path(item)
        paths[path] = {"patch": _operation(item, "patch")}
        paths[path.rsplit("/", 1)[0]] = {"post": _operation(item, "post")}
        schemas[_schema_name(item)] = _schema(item, shapes)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Phalanx embedded API server", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _path(item: Version) -> str:
    group = item.type.group
    root = f"/apis/{group}/{item.name}" if group else f"/api/{item.name}"
    scope = "/namespaces/{namespace}" if item.type.namespaced else ""
    return f"{root}{scope}/{item.type.plural}/{{name}}"


def _operation(item: Version, verb: str) -> Json:
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    return {
        "operationId": f"{verb}{item.type.kind}",
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in names
        ],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": _kind(item),
    }


def _kind(item: Version) -> Json:
    return {"group": item.type.group, "kind": item.type.kind, "version": item.name}


def _schema_name(item: Version) -> str:
    group = item.type.group or "core"
    return ".".join([*reversed(group.split(".")), item.name, item.type.kind])


def _schema(item: Version, shapes: Shapes) -> Json:
    meta = {"allOf": [{"$ref": f"#/components/schemas/{_META}.ObjectMeta"}], "default": {}}
    common: Json = {
        "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
        "kind": {"type": "string", "description": "Kind of this object."},
        "metadata": {**meta, "description": "Standard object metadata."},
    }
    if item.openapi is not None:
        schema = dict(item.openapi)
        schema["properties"] = {**item.openapi.get("properties", {}), **common}
    else:
        schema = shapes.of_kind(item, _schema_name(item))
        schema["properties"] = {**schema.get("properties", {}), **common}
    schema["type"] = "object"
    schema["x-kubernetes-group-version-kind"] = [_kind(item)]
    return schema


def _object_meta() -> Json:
    text = {"type": "string"}
    texts = {"type": "object", "additionalProperties": text}
    number = {"type": "integer", "format": "int64"}
    time = {"type": "string", "format": "date-time"}
    anything = {"type": "array", "items": {"type": "object"}}
    properties = {
        "annotations": texts,
        "creationTimestamp": time,
        "deletionGracePeriodSeconds": number,
        "deletionTimestamp": time,
        "finalizers": {"type": "array", "items": text},
        "generateName": text,
        "generation": number,
        "labels": texts,
        "managedFields": anything,
        "name": text,
        "namespace": text,
        "ownerReferences": anything,
        "resourceVersion": text,
        "selfLink": text,
        "uid": text,
    }
    return {"type": "object", "description": "Metadata that every object has.", "properties": properties}
