"""A log of changed rows that many readers follow, each with a cursor of its own."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

_KEEP = 1 << 16


class ChangeLog:
    """Row numbers in the order of their changes; a reader that lags too far behind is told to start over."""

    def __init__(self) -> None:
        # (No list: numpy takes in the rows that some reader has missed forty times as fast.)
        self._rows = array("q")
        self._base = 0

    @property
    def end(self) -> int:
        """The cursor of a reader that has seen everything."""
        return self._base + len(self._rows)

    def note(self, row: int) -> None:
        self._rows.append(row)
        if len(self._rows) > 2 * _KEEP:
            self._forget()

    def note_all(self, rows: Iterable[int]) -> None:
        self._rows.extend(rows)
        if len(self._rows) > 2 * _KEEP:
            self._forget()

    def since(self, cursor: int, limit: int) -> array[int] | None:
        """The rows noted after `cursor`, repeats included; None if they are forgotten or more than `limit`.

        None means: look at all rows.
        """
        if cursor < self._base or self.end - cursor > limit:
            return None
        return self._rows[cursor - self._base :]

    def _forget(self) -> None:
        surplus = len(self._rows) - _KEEP
        del self._rows[:surplus]
        self._base += surplus
