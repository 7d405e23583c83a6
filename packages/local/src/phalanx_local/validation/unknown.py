"""Unknown fields in objects of built-in kinds (strict field validation)."""

from __future__ import annotations

from typing import Any

from phalanx_local.validation.kinds import kind_type
from phalanx_local.validation.types import FieldType


def unknown_fields(group: str, kind: str, obj: dict[str, Any], version: str = "") -> list[str]:
    """Return the paths of an object's unknown fields in document order; [] for kinds whose fields are not known
    here.

    A path has the form ``spec.containers[0].imagee``, as in the API server's ``unknown field "..."``. The default
    version is that of the object's apiVersion.
    """
    version = version or str(obj.get("apiVersion") or "").rpartition("/")[2]
    root = kind_type(group, kind, version) or kind_type(group, kind)
    found: list[str] = []
    if root is not None:
        _walk(root, obj, "", found)
    return found


def _walk(kind: FieldType, value: Any, path: str, found: list[str]) -> None:
    if kind.form == "struct" and type(value) is dict:
        fields = kind.fields
        for name, item in value.items():
            member = fields.get(name)
            if member is None:
                found.append(f"{path}.{name}" if path else name)
            elif type(item) is dict or type(item) is list:
                form = member.type.form
                if form != "any" and form != "scalar":
                    _walk(member.type, item, f"{path}.{name}" if path else name, found)
        return
    element = kind.element
    if element is None or element.form in ("scalar", "any"):
        return
    if kind.form == "list" and type(value) is list:
        for index, item in enumerate(value):
            _walk(element, item, f"{path}[{index}]", found)
    elif kind.form == "map" and type(value) is dict:
        for name, item in value.items():
            _walk(element, item, f"{path}.{name}", found)
