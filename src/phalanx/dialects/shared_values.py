"""Sharing of equal values, such as the declarations of one gang's pods, so that each is stored once."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")

# The pods of a gang arrive close together, in lists as well as in watches, so few values need to be remembered.
_MOST = 10_000


class SharedValues:
    """Bounded memory of immutable values; equal values that arrive close together become one object."""

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}

    def share(self, value: T) -> T:
        """Return the remembered object that equals `value`, or remember `value` and return it."""
        values = self._values
        if len(values) >= _MOST and value not in values:
            values.clear()
        shared: T = values.setdefault(value, value)
        return shared
