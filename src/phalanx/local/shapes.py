"""The outline of built-in kinds for OpenAPI."""

from __future__ import annotations

from phalanx.local.objects import Json
from phalanx.local.resources import Version


def built_in_schema(item: Version, schemas: Json) -> Json:
    """The schema of a built-in kind; `schemas` takes what it refers to."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties: Json = {"spec": {**free, "description": f"Desired state of the {item.type.kind}."}}
    if "status" in item.subresources:
        properties["status"] = {**free, "description": f"Observed state of the {item.type.kind}."}
    return {"description": f"{item.type.kind}, a resource of {item.api_version}.", "properties": properties}
