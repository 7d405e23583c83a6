"""Sorted and filtered list of rows, fast for tens of thousands of frequently changing rows."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from phalanx.cli.top.filters import Fields, Filter
from phalanx.cli.top.line_view import LineView
from phalanx.cli.top.pieces import Piece, Pieces, fitted

R = TypeVar("R")

# Above this number of changes, sorting all rows is faster than moving each.
_MAX_MOVES = 2000

SortKey = tuple[Any, ...]


@dataclass(frozen=True)
class PanelColumn(Generic[R]):
    """Column of a panel in `phalanx top`.

    `cell` returns the text at a time (seconds), or `draw` the pieces for a width. The column has `width` cells
    and its part (`grow`) of the remaining ones. If the room is too small, columns with the highest `rank` are
    dropped first.
    """

    title: str
    cell: Callable[[R, float], str] = lambda row, now: ""
    width: int = 8
    grow: int = 0
    rank: int = 0
    right: bool = False
    style: Callable[[R], str] = lambda row: ""
    draw: Callable[[R, int], Pieces] | None = None


def layout(columns: Sequence[PanelColumn[R]], width: int) -> list[tuple[PanelColumn[R], int]]:
    """Return the columns that fit into `width` cells, with their widths."""
    shown = list(columns)
    while len(shown) > 1 and sum(column.width + 1 for column in shown) > width:
        # Of equal ranks the last column is dropped.
        shown.remove(max(reversed(shown), key=lambda column: column.rank))
    remaining = max(0, width - sum(column.width + 1 for column in shown))
    parts = sum(column.grow for column in shown)
    return [(column, column.width + (remaining * column.grow // parts if parts else 0)) for column in shown]


class RowList(LineView, Generic[R]):
    """Panel with a sorted and filtered list of rows. `orders` are the sort orders by name, the first is the
    default; ties are sorted by id."""

    def __init__(
        self,
        *,
        id: str,
        columns: Sequence[PanelColumn[R]],
        fields: Fields[R],
        orders: Mapping[str, Callable[[R], SortKey]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(id=id)
        self._columns, self._fields, self._orders, self._clock = columns, fields, orders, clock
        self._rows: Mapping[str, R] = {}
        self.order = next(iter(orders))
        self.filter: Filter[R] = Filter("", fields)
        # Sorted (key, id) of the matching rows, and the sort key of each row by id.
        self._sorted: list[tuple[SortKey, str]] = []
        self._keys: dict[str, SortKey] = {}
        self._on = ""
        # Until the user moves, the cursor stays on the first line, whichever row that is.
        self._moved = False
        self._layout: tuple[int, list[tuple[PanelColumn[R], int]]] = (-1, [])

    @property
    def matching(self) -> int:
        return len(self._sorted)

    # rows

    def take_in(self, rows: Mapping[str, R], changed: Collection[str] | None) -> None:
        """Replace all rows of the list by `rows`; `changed` are ids of new, removed and changed rows (None: all).

        The cursor stays on its row.
        """
        self._rows = rows
        if changed is None or len(changed) > _MAX_MOVES:
            self._sort()
        else:
            for row in changed:
                self._move_row(row)
        self._restore_cursor()

    def sort_by(self, order: str) -> None:
        self.order = order
        self._sort()
        self._restore_cursor()

    def filter_by(self, text: str) -> None:
        self.filter = Filter(text, self._fields)
        self._sort()
        self._restore_cursor()

    def _sort(self) -> None:
        key, matches = self._orders[self.order], self.filter
        self._keys = {name: key(row) for name, row in self._rows.items() if matches(row)}
        self._sorted = sorted((sort_key, name) for name, sort_key in self._keys.items())

    def _move_row(self, name: str) -> None:
        row, old = self._rows.get(name), self._keys.pop(name, None)
        new = self._orders[self.order](row) if row is not None and self.filter(row) else None
        if old is not None and old != new:
            del self._sorted[bisect.bisect_left(self._sorted, (old, name))]
        if new is not None:
            self._keys[name] = new
            if old != new:
                bisect.insort(self._sorted, (new, name))

    def _restore_cursor(self) -> None:
        """Move the cursor to its row, if possible at the same height of the screen."""
        if not self._moved:
            self.go(0)
            return
        key, height = self._keys.get(self._on), self.cursor - self.top
        number = bisect.bisect_left(self._sorted, (key, self._on)) if key is not None else self.cursor
        if key is not None and number != self.cursor:
            self.top = number - height if self.cursor else self.top
        self.go(number)

    def go(self, number: int) -> None:
        super().go(number)
        self._on = self.chosen()

    def action_move(self, by: int) -> None:
        super().action_move(by)
        self._moved = self.cursor > 0

    def choose(self, name: str) -> None:
        """Move the cursor to the row with this id if the list shows it."""
        if name in self._keys:
            self._on, self._moved = name, True
            self._restore_cursor()

    # drawing

    def chosen(self) -> str:
        return self._sorted[self.cursor][1] if 0 <= self.cursor < len(self._sorted) else ""

    def count(self) -> int:
        return len(self._sorted)

    def head(self, width: int) -> Pieces:
        return [
            Piece(f"{fitted(column.title, size, right=column.right)} ", "title")
            for column, size in self._fit(width)
        ]

    def line(self, number: int, width: int) -> Pieces:
        row, now = self._rows.get(self._sorted[number][1]), self._clock()
        pieces: Pieces = []
        if row is None:
            return pieces  # removed; the next update of the list removes its line
        for column, size in self._fit(width):
            if column.draw is not None:
                pieces += [*column.draw(row, size), Piece(" ")]
            else:
                text = fitted(column.cell(row, now), size, right=column.right)
                pieces.append(Piece(f"{text} ", column.style(row)))
        return pieces

    def _fit(self, width: int) -> list[tuple[PanelColumn[R], int]]:
        if self._layout[0] != width:
            self._layout = (width, layout(self._columns, width))
        return self._layout[1]
