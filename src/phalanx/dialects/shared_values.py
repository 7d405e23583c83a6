"""Sharing of equal values, such as the declarations of one gang's pods, so that each is stored once."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")

# The pods of a gang arrive close together, in lists as well as in watches, so few values need to be remembered.
_MOST = 10_000


class SharedValues(dict[T, T]):
    """Bounded memory of immutable values: `shared[value]` is the remembered object that equals `value`.

    Equal values that arrive close together become one object. A subscript, because every pod passes here, and a
    remembered value costs no call.
    """

    def __missing__(self, value: T) -> T:
        if len(self) >= _MOST:
            self.clear()
        self[value] = value
        return value
