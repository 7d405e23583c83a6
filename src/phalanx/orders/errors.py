"""Refusals of an order, with a text for the user."""

from __future__ import annotations


class OrderError(Exception):
    """The order is refused; `message` is for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFoundError(OrderError):
    """No object has this name."""


class BadNameError(OrderError):
    """The name is invalid, or its kind is unknown."""
