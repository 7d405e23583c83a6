"""Validation rules of the API server: built-in kinds, names, metadata, quantities and unknown fields.

All functions are pure and work on decoded JSON. Objects have the form of the request or the defaulted form; a
missing field with a default is valid.
"""

from phalanx_local.validation.decoding import malformed
from phalanx_local.validation.errors import FieldError
from phalanx_local.validation.objects import validate
from phalanx_local.validation.unknown import unknown_fields

__all__ = [
    "FieldError",
    "malformed",
    "unknown_fields",
    "validate",
]
