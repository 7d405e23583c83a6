"""Discovery and OpenAPI documents of the aggregated API.

One resource, `answers`, is named by commands: `namespaces/NAMESPACE/answers/why?name=train`.
"""

from __future__ import annotations

from typing import Any

from phalanx.reports.aggregated_names import GROUP, GROUP_VERSION, KIND, RESOURCE, VERSION

#: Media type of discovery in one document, which the aggregator prefers.
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# A list would be part of `kubectl get` over all resources, and a deletion of that of namespaces.
_VERBS = ("create", "get")
_ROOT, _JSON = f"/apis/{GROUP_VERSION}", "application/json"

Json = dict[str, Any]


def group_list() -> Json:
    """Return the document of GET /apis."""
    group = api_group()
    del group["kind"], group["apiVersion"]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}


def api_group() -> Json:
    """Return the document of GET /apis/GROUP."""
    version = {"groupVersion": GROUP_VERSION, "version": VERSION}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [version],
        "preferredVersion": version,
    }


def resource_list() -> Json:
    """Return the document of GET /apis/GROUP/VERSION."""
    resource = {
        "name": RESOURCE,
        "singularName": KIND.lower(),
        "namespaced": True,
        "kind": KIND,
        "verbs": list(_VERBS),
    }
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": GROUP_VERSION,
        "resources": [resource],
    }


def aggregated_discovery() -> Json:
    """Return the document of GET /apis in the form of AGGREGATED."""
    resource = {
        "resource": RESOURCE,
        "responseKind": {"group": GROUP, "version": VERSION, "kind": KIND},
        "scope": "Namespaced",
        "singularResource": KIND.lower(),
        "verbs": list(_VERBS),
    }
    version = {"version": VERSION, "resources": [resource], "freshness": "Current"}
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{"metadata": {"name": GROUP, "creationTimestamp": None}, "versions": [version]}],
    }


def openapi_v2() -> Json:
    """Return the document of GET /openapi/v2."""
    return {
        "swagger": "2.0",
        "info": _info(),
        "paths": {_path(): {"get": _operation_v2()}},
        "definitions": {_schema_name(): _schema()},
    }


def openapi_v3_index() -> Json:
    """Return the document of GET /openapi/v3."""
    return {"paths": {_ROOT[1:]: {"serverRelativeURL": f"/openapi/v3{_ROOT}"}}}


def openapi_v3() -> Json:
    """Return the document of GET /openapi/v3/apis/GROUP/VERSION."""
    return {
        "openapi": "3.0.0",
        "info": _info(),
        "paths": {_path(): {"get": _operation_v3()}},
        "components": {"schemas": {_schema_name(): _schema()}},
    }


def _info() -> Json:
    return {"title": "Phalanx visibility", "version": VERSION}


def _path() -> str:
    return f"{_ROOT}/namespaces/{{namespace}}/{RESOURCE}/{{name}}"


def _operation_v2() -> Json:
    # The aggregator removes definitions to which no operation refers.
    answer = {"description": "OK", "schema": {"$ref": f"#/definitions/{_schema_name()}"}}
    parameters = [_parameter(name) | {"type": "string"} for name in ("namespace", "name")]
    return {**_operation(), "parameters": parameters, "produces": [_JSON], "responses": {"200": answer}}


def _operation_v3() -> Json:
    schema = {"$ref": f"#/components/schemas/{_schema_name()}"}
    answer = {"description": "OK", "content": {_JSON: {"schema": schema}}}
    parameters = [_parameter(name) | {"schema": {"type": "string"}} for name in ("namespace", "name")]
    return {**_operation(), "parameters": parameters, "responses": {"200": answer}}


def _operation() -> Json:
    return {
        "operationId": f"readNamespaced{KIND}",
        "x-kubernetes-action": "get",
        "x-kubernetes-group-version-kind": _kind(),
    }


def _parameter(name: str) -> Json:
    return {"name": name, "in": "path", "required": True}


def _kind() -> Json:
    return {"group": GROUP, "kind": KIND, "version": VERSION}


def _schema_name() -> str:
    return ".".join([*reversed(GROUP.split(".")), VERSION, KIND])


def _schema() -> Json:
    return {
        "type": "object",
        "description": "Answer of Phalanx to the question of a command, with the rights of the user.",
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {"type": "object", "description": "Name of the command, and the namespace."},
            "answer": {
                "type": "object",
                "description": "The JSON that the command prints.",
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
        "x-kubernetes-group-version-kind": [_kind()],
    }
