"""Refusals of a command to a gang (hold, release, suspend, cancel), with a text for the user."""

from __future__ import annotations


class OrderError(Exception):
    """Refused command to a gang; `message` is for the user.

    `fix` is the part of the message with a command that works instead, and `order` its name, which is that of the
    method of a job in Python.
    """

    def __init__(self, message: str, *, fix: str = "", order: str = "") -> None:
        self.reason = message
        self.message = f"{message}. {fix}" if fix else message
        self.order = order
        super().__init__(self.message)


class NotFoundError(OrderError):
    """Refusal because no job or gang has the given name."""


class BadNameError(OrderError):
    """Refusal because the given name is invalid, or its kind is unknown."""


class InvalidRequestError(OrderError):
    """Refusal because a field of a job request is invalid: `field` names it, `value` is the given value.

    `problem` continues a sentence that begins with the field and its value.
    """

    def __init__(self, field: str, value: object, problem: str) -> None:
        super().__init__(f"invalid {field} {value}{problem}")
        self.field = field
        self.value = value
        self.problem = problem
