"""Enum values that the CRDs of `phalanx install` permit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from phalanx.dialects.reader import Document, show
from phalanx.dialects.registry import BUILT_IN
from phalanx.model.text.yaml_text import decode_yaml
from phalanx.reports.migration.readers import Path


def refused_value(document: Document, path: Path, value: object) -> str:
    """Return the reason why the API server would refuse the enum value at a path, "" for a permitted value."""
    group, _, version = str(document.get("apiVersion") or "").rpartition("/")
    schema = _schemas(group).get((str(document.get("kind")), version), {})
    for step in path:
        if isinstance(step, int):
            schema = schema.get("items") or {}
        else:
            schema = (schema.get("properties") or {}).get(step) or schema.get("additionalProperties") or {}
        if not isinstance(schema, Mapping):
            return ""
    words = schema.get("enum")
    if not words or value in words:
        return ""
    return f"{show(value)} is refused by the API server; write one of {', '.join(map(str, words))}"


@cache
def _schemas(group: str) -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """Return the CRD schemas of an API group by kind and version."""
    schemas: dict[tuple[str, str], Mapping[str, Any]] = {}
    for folder in (dialect.definitions for dialect in BUILT_IN if dialect.definitions is not None):
        for entry in folder.iterdir():
            if entry.name.endswith(f".{group}.yaml"):
                spec = decode_yaml(entry.read_text(encoding="utf-8"))["spec"]
                for version in spec["versions"]:
                    schema = version["schema"]["openAPIV3Schema"]
                    schemas[spec["names"]["kind"], version["name"]] = schema
    return schemas
