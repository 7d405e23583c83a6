"""Errors of CEL expressions at compile time and at run time."""

from __future__ import annotations


class CompileError(ValueError):
    """Error in a text that is no valid CEL expression; the message shows the position, like cel-go."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.position = position

    def shown(self, source: str) -> str:
        """Format the error with line, column and a pointer into the source."""
        before = source[: self.position]
        line = before.count("\n") + 1
        start = before.rfind("\n") + 1
        column = self.position - start
        text = source[start:].split("\n", 1)[0]
        return f"ERROR: <input>:{line}:{column + 1}: {self.message}\n | {text}\n | {'.' * column}^"


class InstantiationError(CompileError):
    """Error for a constant of a CEL expression that cannot be prepared for evaluation."""

    def shown(self, source: str) -> str:
        """Format the error without a position."""
        return self.message


class EvalError(Exception):
    """Error of a CEL expression that has no value for its inputs (no such key, division by zero, ...)."""


class BudgetError(Exception):
    """Error of a CEL evaluation that needs more steps than a rule is allowed."""
