"""Check of the JSON types of built-in kinds: errors with which a Go server cannot decode the object."""

from __future__ import annotations

from typing import Any, Final

from phalanx.model.text.quantity import QuantityError, read_quantity
from phalanx_local.validation.errors import FieldError, shown, type_invalid
from phalanx_local.validation.kinds import kind_type, struct_type
from phalanx_local.validation.types import FieldType

_INTEGERS: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


def malformed(group: str, kind: str, obj: dict[str, Any], version: str = "") -> list[FieldError]:
    """Return errors for fields with a wrong JSON type or quantity, in document order; [] for kinds whose fields are
    not known here.

    The API server answers these with 400 (it cannot decode the object), not 422. Null counts as absent.
    """
    version = version or str(obj.get("apiVersion") or "").rpartition("/")[2]
    root = kind_type(group, kind, version) or kind_type(group, kind)
    errors: list[FieldError] = []
    if root is not None:
        _walk(errors, root, obj, "")
    return errors


def malformed_metadata(meta: Any) -> list[FieldError]:
    """Return errors for fields of ``metadata`` with a wrong JSON type; metadata has the same fields in every
    kind."""
    errors: list[FieldError] = []
    _walk(errors, struct_type("meta.v1", "ObjectMeta"), meta, "metadata")
    return errors


def _walk(errors: list[FieldError], kind: FieldType, value: Any, path: str) -> None:
    form = kind.form
    if form == "scalar":
        if not _scalar(kind.scalar, value):
            if kind.scalar == "quantity":
                _bad_quantity(errors, value, path)
            else:
                _mismatch(errors, value, path, kind.scalar)
    elif form == "list":
        if type(value) is not list:
            _mismatch(errors, value, path, "list")
            return
        element = kind.element
        if element is None or element.form == "any":
            return
        strings = element.form == "scalar" and element.scalar == "string"
        if not (strings and all(type(item) is str for item in value)):
            for index, item in enumerate(value):
                _walk(errors, element, item, f"{path}[{index}]")
    elif form == "struct":
        if type(value) is not dict:
            _mismatch(errors, value, path, "object")
            return
        members = kind.fields
        for name, item in value.items():
            member = members.get(name)
            if member is None or item is None:
                continue
            below = member.type
            if below.form == "scalar":
                if below.scalar == "string" and type(item) is str:
                    continue
                if not _scalar(below.scalar, item):
                    _walk(errors, below, item, f"{path}.{name}" if path else name)
            elif below.form != "any":
                _walk(errors, below, item, f"{path}.{name}" if path else name)
    elif form == "map":
        if type(value) is not dict:
            _mismatch(errors, value, path, "object")
            return
        element = kind.element
        if element is not None and element.form != "any":
            string = element.form == "scalar" and element.scalar == "string"
            for name, item in value.items():
                if item is not None and not (string and type(item) is str):
                    _walk(errors, element, item, f"{path}[{name}]")


def _scalar(name: str, value: Any) -> bool:
    kind = type(value)
    if name in ("string", "bytes", "time", "microtime"):
        return kind is str
    if name in _INTEGERS:
        low, high = _INTEGERS[name]
        return kind is int and low <= value <= high
    if name == "bool":
        return kind is bool
    if name == "quantity":
        try:
            read_quantity(value)
        except QuantityError:
            return False
        return True
    if name == "intOrString":
        return kind is int or kind is str
    if name == "duration":
        return kind is str or kind is int
    return kind is int or kind is float


def _bad_quantity(errors: list[FieldError], value: Any, path: str) -> None:
    try:
        read_quantity(value)
    except QuantityError as error:
        errors.append(FieldError(path, "FieldValueInvalid", f"Invalid value: {shown(value)}: {error.reason}"))


def _mismatch(errors: list[FieldError], value: Any, path: str, wanted: str) -> None:
    found = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
    word = found.get(type(value), "null")
    detail = f"json: cannot unmarshal {word} into Go struct field {path} of type {wanted}"
    errors.append(type_invalid(path, value, detail))
