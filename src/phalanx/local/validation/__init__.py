"""What the API server refuses: rules for built-in kinds, names, metadata, quantities and unknown fields.

Pure functions over decoded JSON. Objects are expected as they arrive or as defaulted; a missing field that has a
default counts as having it.
"""

from phalanx.local.validation.decoding import malformed
from phalanx.local.validation.errors import FieldError
from phalanx.local.validation.objects import validate
from phalanx.local.validation.quantity import Quantity, QuantityError, parse_quantity
from phalanx.local.validation.unknown import unknown_fields

__all__ = [
    "FieldError",
    "Quantity",
    "QuantityError",
    "malformed",
    "parse_quantity",
    "unknown_fields",
    "validate",
]
