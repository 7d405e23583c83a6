"""How an expression fails: when it is read, or when it is evaluated."""

from __future__ import annotations


class CompileError(ValueError):
    """The text is not an expression that can be used here; the message shows the place, as cel-go does."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.position = position

    def shown(self, source: str) -> str:
        """The message with line, column and a pointer into the source."""
        before = source[: self.position]
        line = before.count("\n") + 1
        start = before.rfind("\n") + 1
        column = self.position - start
        text = source[start:].split("\n", 1)[0]
        return f"ERROR: <input>:{line}:{column + 1}: {self.message}\n | {text}\n | {'.' * column}^"


class InstantiationError(CompileError):
    """A constant of the expression cannot be prepared for evaluation."""

    def shown(self, source: str) -> str:
        """The message alone."""
        return self.message


class EvalError(Exception):
    """An expression that has no value for these inputs (no such key, division by zero, ...)."""


class BudgetError(Exception):
    """Evaluation took more steps than a rule may."""
