"""Log of changed rows for several readers, each with its own cursor."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

_KEEP = 1 << 16


class ChangeLog:
    """Numbers of changed rows in the order of their changes; a reader that lags too far behind has to start
    over."""

    def __init__(self) -> None:
        # An array instead of a list: numpy reads it forty times as fast.
        self._rows = array("q")
        self._base = 0
        #: Cursor of a reader that has seen all changes.
        self.end = 0

    def note(self, row: int) -> None:
        self._rows.append(row)
        self.end += 1
        if len(self._rows) > 2 * _KEEP:
            self._forget()

    def note_all(self, rows: Iterable[int]) -> None:
        self._rows.extend(rows)
        self.end = self._base + len(self._rows)
        if len(self._rows) > 2 * _KEEP:
            self._forget()

    def since(self, cursor: int, limit: int) -> array[int] | None:
        """Return the rows recorded after `cursor`, with repetitions; None if they are discarded or more than
        `limit`.

        None means that the reader has to process all rows.
        """
        if cursor < self._base or self.end - cursor > limit:
            return None
        return self._rows[cursor - self._base :]

    def _forget(self) -> None:
        surplus = len(self._rows) - _KEEP
        del self._rows[:surplus]
        self._base += surplus
