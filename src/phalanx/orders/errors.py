"""Refusals of a command to a gang (hold, release, suspend, cancel), with a text for the user."""

from __future__ import annotations


class OrderError(Exception):
    """Refused command to a gang; `message` is for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFoundError(OrderError):
    """Refusal because no job or gang has the given name."""


class BadNameError(OrderError):
    """Refusal because the given name is invalid, or its kind is unknown."""
