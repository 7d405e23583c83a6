"""Common Expression Language (CEL) as Kubernetes uses it in validation rules.

The implementation is our own (see docs/decisions/006): an expression is compiled once into Python closures. Other
packages use only `compile_text`, `declared` and the errors.
"""

from phalanx_local.schema.cel.authorizing import AUTHORIZER, CHECK
from phalanx_local.schema.cel.compiler import CelProgram, compile_text
from phalanx_local.schema.cel.conversions import converter
from phalanx_local.schema.cel.errors import BudgetError, CompileError, EvalError, InstantiationError
from phalanx_local.schema.cel.macros import STEPS
from phalanx_local.schema.cel.types import DYN, REQUEST_LIMIT, Type, declared, optional_of
from phalanx_local.schema.cel.values import NONE, Authorizer, Check, Option

__all__ = [
    "AUTHORIZER",
    "CHECK",
    "DYN",
    "NONE",
    "REQUEST_LIMIT",
    "STEPS",
    "Authorizer",
    "BudgetError",
    "CelProgram",
    "Check",
    "CompileError",
    "EvalError",
    "InstantiationError",
    "Option",
    "Type",
    "compile_text",
    "converter",
    "declared",
    "optional_of",
]
