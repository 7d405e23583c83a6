"""Custom resource schemas: defaulting, pruning, validation, and the check of the schemas themselves."""

from phalanx_local.schema.check import check_schema
from phalanx_local.schema.structural import StructuralSchema

__all__ = ["StructuralSchema", "check_schema"]
