"""Schema of a custom resource at run time: defaulting, pruning and validation."""

from __future__ import annotations

from typing import Any, Final

from phalanx_local.patches.json_patch import clone
from phalanx_local.schema.nodes import SchemaNode, read_node
from phalanx_local.schema.rules import check_rules, compile_rules
from phalanx_local.schema.values import NOTHING, WHOLE, check_lists, check_value
from phalanx_local.validation.errors import (
    NOT_SUPPORTED,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    TYPE_INVALID,
    FieldError,
)

#: Errors after which rules are not executed, because rules depend on the shape of the object.
_BLOCKING: Final = frozenset((NOT_SUPPORTED, REQUIRED, TOO_LONG, TOO_MANY, TYPE_INVALID))
_NOT_CHECKED: Final = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_META: Final = frozenset(("apiVersion", "kind", "metadata"))


class StructuralSchema:
    """``openAPIV3Schema`` of one version of a custom resource, compiled once.

    The methods expect whole objects. Pruning and defaulting ignore ``apiVersion``, ``kind`` and ``metadata``,
    which the server validates.
    """

    def __init__(self, openapi_v3_schema: dict[str, Any]) -> None:
        self.root = read_node(openapi_v3_schema)
        self.rules = compile_rules(self.root, root=True)

    def default(self, obj: dict[str, Any]) -> None:
        """Set the defaults of absent fields in place, at any depth of the existing fields.

        A null where null is invalid is first dropped, or replaced by the default of the field.
        """
        _drop_nulls(obj, self.root)
        if self.root.defaulting:
            _default(obj, self.root)

    def prune(self, obj: dict[str, Any]) -> list[str]:
        """Remove fields that the schema does not know from an object, in place; return their sorted paths."""
        dropped: list[str] = []
        _prune(obj, self.root, "", dropped, True)
        return sorted(dropped)

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None = None) -> list[FieldError]:
        """Return all errors of an object by the schema; ``old`` is the stored object of an update.

        Rules are executed only on objects of the right shape. Values that an update did not change cause no
        errors. Field paths have no leading dot; ``<nil>`` is the object as a whole.
        """
        errors: list[FieldError] = []
        former = NOTHING if old is None else old
        check_value(errors, self.root, obj, "", former)
        check_lists(errors, self.root, obj, "")
        if self.rules is not None:
            if any(error.reason in _BLOCKING for error in errors):
                errors.append(FieldError(WHOLE, "FieldValueInvalid", f"Invalid value: null: {_NOT_CHECKED}"))
            else:
                check_rules(errors, self.rules, obj, "", former)
        return errors


def unknown_in(value: Any, node: SchemaNode) -> list[str]:
    """Return the sorted paths of a value's fields that the schema does not know; the value is not changed."""
    dropped: list[str] = []
    _prune(clone(value), node, "", dropped)
    return sorted(dropped)


def _drop_nulls(value: Any, node: SchemaNode | None) -> None:
    if type(value) is dict:
        for name in list(value):
            item = value[name]
            sub = (node.properties.get(name) or node.additional) if node is not None else None
            if item is None:
                if sub is not None and not sub.nullable and not sub.has_default:
                    del value[name]
            elif sub is not None and (type(item) is dict or type(item) is list):
                _drop_nulls(item, sub)
    elif type(value) is list and node is not None and node.items is not None:
        for item in value:
            _drop_nulls(item, node.items)


def _default(value: Any, node: SchemaNode) -> None:
    if type(value) is dict:
        for name, sub in node.properties.items():
            if sub.has_default and (name not in value or (value[name] is None and not sub.nullable)):
                value[name] = clone(sub.default)
            if sub.defaulting and name in value:
                _default(value[name], sub)
        extra = node.additional
        if extra is not None and (extra.has_default or extra.defaulting):
            for name, item in value.items():
                if name not in node.properties:
                    if item is None and not extra.nullable:
                        value[name] = clone(extra.default)
                    _default(value[name], extra)
    elif type(value) is list and node.items is not None:
        sub = node.items
        for index, item in enumerate(value):
            if item is None and not sub.nullable:
                value[index] = clone(sub.default)
            if sub.defaulting:
                _default(value[index], sub)


def _prune(value: Any, node: SchemaNode | None, path: str, dropped: list[str], root: bool = False) -> None:
    if type(value) is dict:
        keep_meta = root or (node is not None and node.embedded)
        for name in list(value):
            if keep_meta and name in _META:
                continue
            here = f"{path}.{name}" if path else name
            sub = (node.properties.get(name) or node.additional) if node is not None else None
            if sub is not None:
                item = value[name]
                if type(item) is dict or type(item) is list:
                    _prune(item, sub, here, dropped)
            elif node is None or not node.preserve:
                del value[name]
                dropped.append(here)
    elif type(value) is list:
        items = node.items if node is not None else None
        if node is not None and node.preserve and items is None:
            return
        for index, item in enumerate(value):
            if type(item) is dict or type(item) is list:
                _prune(item, items, f"{path}[{index}]", dropped)
