"""Custom resource schemas: defaulting, pruning, validation, and the check of the schemas themselves."""

from phalanx.local.schema.check import check_schema
from phalanx.local.schema.structural import StructuralSchema

__all__ = ["StructuralSchema", "check_schema"]
