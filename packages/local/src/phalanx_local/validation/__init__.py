"""What the API server refuses: rules for built-in kinds, names, metadata, quantities and unknown fields.

Pure functions over decoded JSON. Objects are expected as they arrive or as defaulted; a missing field that has a
default counts as having it.
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
