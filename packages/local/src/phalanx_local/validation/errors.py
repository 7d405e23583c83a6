"""Field errors in the vocabulary of a Kubernetes Status.

A rejection has a list of causes. Each has a field path (``spec.containers[0].name``), a machine-readable reason
(the ``reason`` of ``status.details.causes``) and a message. The message starts with the usual prefix of kubectl
("Invalid value: ...", "Required value: ..."), so that a server only joins ``field: message``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

INVALID: Final = "FieldValueInvalid"
REQUIRED: Final = "FieldValueRequired"
FORBIDDEN: Final = "FieldValueForbidden"
DUPLICATE: Final = "FieldValueDuplicate"
NOT_SUPPORTED: Final = "FieldValueNotSupported"
TOO_LONG: Final = "FieldValueTooLong"
TOO_MANY: Final = "FieldValueTooMany"
TYPE_INVALID: Final = "FieldValueTypeInvalid"
NOT_FOUND: Final = "FieldValueNotFound"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field error of a rejected object: field path, machine-readable reason, message (without the field
    path)."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def shown(value: object) -> str:
    """Format a value as in errors of the API server: strings quoted, objects as compact JSON, null as null."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    return str(value)


def invalid(field: str, value: object, detail: str) -> FieldError:
    """Return the field error for a value that is malformed or violates a rule."""
    return FieldError(field, INVALID, f"Invalid value: {shown(value)}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    """Return the field error for a missing value."""
    return FieldError(field, REQUIRED, f"Required value: {detail}" if detail else "Required value")


def forbidden(field: str, detail: str) -> FieldError:
    """Return the field error for a value that must not be set or changed."""
    return FieldError(field, FORBIDDEN, f"Forbidden: {detail}")


def duplicate(field: str, value: object) -> FieldError:
    """Return the field error for a value that must be unique."""
    return FieldError(field, DUPLICATE, f"Duplicate value: {shown(value)}")


def not_supported(field: str, value: object, allowed: Iterable[Any], *, keep_order: bool = False) -> FieldError:
    """Return the field error for a value outside of an enumeration (the message lists the enumeration, sorted by
    default)."""
    names = ", ".join(shown(item) for item in (allowed if keep_order else sorted(allowed, key=str)))
    detail = f": supported values: {names}" if names else ""
    return FieldError(field, NOT_SUPPORTED, f"Unsupported value: {shown(value)}{detail}")


def too_long(field: str, limit: int) -> FieldError:
    """Return the field error for a string (or an encoded object) above its limit in bytes."""
    unit = "byte" if limit == 1 else "bytes"
    return FieldError(field, TOO_LONG, f"Too long: may not be more than {limit} {unit}")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    """Return the field error for a list or map with more items than its limit."""
    unit = "item" if limit == 1 else "items"
    return FieldError(field, TOO_MANY, f"Too many: {actual}: must have at most {limit} {unit}")


def type_invalid(field: str, value: object, detail: str) -> FieldError:
    """Return the field error for a value of the wrong JSON type."""
    return FieldError(field, TYPE_INVALID, f"Invalid value: {shown(value)}: {detail}")
