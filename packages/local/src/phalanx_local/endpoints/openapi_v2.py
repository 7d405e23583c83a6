"""OpenAPI v2 document, for clients that still ask for it.

kubectl reads it only for objects that OpenAPI v3 does not describe, such as `kind: List`, and then leaves the check
of each item to the server. Its binary form therefore has no definitions; the JSON form has those of all kinds.
"""

from __future__ import annotations

from typing import Any, Final

from phalanx_local.endpoints import openapi
from phalanx_local.objects import Json
from phalanx_local.registry.resources import Registry

# The media type with "@" is not valid in an answer: kube-openapi accepts both and answers with the second.
ACCEPTED: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_TITLE, _VERSION = "Phalanx embedded API server", "v1"
_V3_REFERENCE, _V2_REFERENCE = "#/components/schemas/", "#/definitions/"


def document(registry: Registry) -> Json:
    """Return GET /openapi/v2: the schemas of all served kinds as definitions, without paths."""
    definitions: Json = {}
    for group, versions in registry.groups().items():
        for version in versions:
            definitions |= openapi.document(registry, group, version)["components"]["schemas"]
    return {
        "swagger": "2.0",
        "info": {"title": _TITLE, "version": _VERSION},
        "paths": {},
        "definitions": _with_v2_references(definitions),
    }


def binary() -> bytes:
    """Return a message `openapi.v2.Document` (gnostic's OpenAPIv2.proto) with swagger, info and empty paths."""
    info = _field(1, _TITLE.encode()) + _field(2, _VERSION.encode())
    return _field(1, b"2.0") + _field(2, info) + _field(8, b"")


def _with_v2_references(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _with_v2_references(value) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_with_v2_references(item) for item in schema]
    if isinstance(schema, str) and schema.startswith(_V3_REFERENCE):
        return schema.replace(_V3_REFERENCE, _V2_REFERENCE, 1)
    return schema


def _field(number: int, content: bytes) -> bytes:
    """Return a length-delimited field of at most 127 bytes."""
    assert len(content) < 128
    return bytes((number << 3 | 2, len(content))) + content
