"""Why an order is refused, in words for whoever gave it."""

from __future__ import annotations


class OrderError(Exception):
    """`message` is for people."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFoundError(OrderError):
    """Nothing has the name that was given."""


class BadNameError(OrderError):
    """What was named cannot be a gang's name, or is of a kind that nobody knows."""
