"""What is wrong with a field, in the vocabulary of a Kubernetes Status.

A refusal carries a list of causes; each names a field path (``spec.containers[0].name``), a machine-readable
reason (the ``reason`` of ``status.details.causes``) and a sentence. The sentence starts with the words that
kubectl users know ("Invalid value: ...", "Required value: ..."), so a server joins ``field: message`` and is done.
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
    """One cause of a refusal: field path, machine reason, sentence (without the field path)."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def shown(value: object) -> str:
    """A value as the API server prints it in an error: strings quoted, objects as compact JSON, null as null."""
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
    """The value is malformed or breaks a rule."""
    return FieldError(field, INVALID, f"Invalid value: {shown(value)}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    """The value is missing."""
    return FieldError(field, REQUIRED, f"Required value: {detail}" if detail else "Required value")


def forbidden(field: str, detail: str) -> FieldError:
    """The value may not be set, or may not be changed."""
    return FieldError(field, FORBIDDEN, f"Forbidden: {detail}")


def duplicate(field: str, value: object) -> FieldError:
    """The value collides with one that must be unique."""
    return FieldError(field, DUPLICATE, f"Duplicate value: {shown(value)}")


def not_supported(field: str, value: object, allowed: Iterable[Any], *, keep_order: bool = False) -> FieldError:
    """The value is none of the values of an enumeration (listed sorted, unless their order is to be kept)."""
    names = ", ".join(shown(item) for item in (allowed if keep_order else sorted(allowed, key=str)))
    detail = f": supported values: {names}" if names else ""
    return FieldError(field, NOT_SUPPORTED, f"Unsupported value: {shown(value)}{detail}")


def too_long(field: str, limit: int) -> FieldError:
    """A string (or an encoded object) above its limit in bytes."""
    unit = "byte" if limit == 1 else "bytes"
    return FieldError(field, TOO_LONG, f"Too long: may not be more than {limit} {unit}")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    """A list or map above its limit in items."""
    unit = "item" if limit == 1 else "items"
    return FieldError(field, TOO_MANY, f"Too many: {actual}: must have at most {limit} {unit}")


def type_invalid(field: str, value: object, detail: str) -> FieldError:
    """The JSON type of the value is wrong."""
    return FieldError(field, TYPE_INVALID, f"Invalid value: {shown(value)}: {detail}")
