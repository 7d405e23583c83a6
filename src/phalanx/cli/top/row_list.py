"""A list of rows in an order, filtered; fit for tens of thousands of them, of which some change all the time."""

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

# From so many changes on, sorting anew is quicker than putting each in its place.
_FEW = 2000

SortKey = tuple[Any, ...]


@dataclass(frozen=True)
class PanelColumn(Generic[R]):
    """`cell` gives the text at a moment (seconds), or `draw` the pieces for a width. It has `width` cells, and its
    part (`grow`) of those that are left. Where there is too little room, columns with the highest `rank` go first.
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
    """Which columns are shown, and how wide."""
    shown = list(columns)
    while len(shown) > 1 and sum(each.width + 1 for each in shown) > width:
        # Of equals the last goes.
        shown.remove(max(reversed(shown), key=lambda each: each.rank))
    left = max(0, width - sum(each.width + 1 for each in shown))
    parts = sum(each.grow for each in shown)
    return [(each, each.width + (left * each.grow // parts if parts else 0)) for each in shown]


class RowList(LineView, Generic[R]):
    """`orders` are ways to sort, by name; the first is the one that it begins with. Equal ones go by id."""

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
        # Sorted: (key, id) of rows that match, and the key of each by id.
        self._sorted: list[tuple[SortKey, str]] = []
        self._keys: dict[str, SortKey] = {}
        self._on = ""
        # Who has not moved looks at the first row, whichever that is.
        self._moved = False
        self._layout: tuple[int, list[tuple[PanelColumn[R], int]]] = (-1, [])

    @property
    def matching(self) -> int:
        return len(self._sorted)

    # what it holds

    def take_in(self, rows: Mapping[str, R], changed: Collection[str] | None) -> None:
        """`rows` are all that there are now, `changed` the ids of those that came, went or differ (None: all). The
        cursor stays with its row."""
        self._rows = rows
        if changed is None or len(changed) > _FEW:
            self._sort()
        else:
            for row in changed:
                self._place(row)
        self._follow()

    def sort_by(self, order: str) -> None:
        self.order = order
        self._sort()
        self._follow()

    def filter_by(self, text: str) -> None:
        self.filter = Filter(text, self._fields)
        self._sort()
        self._follow()

    def _sort(self) -> None:
        key, matches = self._orders[self.order], self.filter
        self._keys = {name: key(row) for name, row in self._rows.items() if matches(row)}
        self._sorted = sorted((each, name) for name, each in self._keys.items())

    def _place(self, name: str) -> None:
        row, known = self._rows.get(name), self._keys.pop(name, None)
        new = self._orders[self.order](row) if row is not None and self.filter(row) else None
        if known is not None and known != new:
            del self._sorted[bisect.bisect_left(self._sorted, (known, name))]
        if new is not None:
            self._keys[name] = new
            if known != new:
                bisect.insort(self._sorted, (new, name))

    def _follow(self) -> None:
        """Puts the cursor on the row that it was on, at the same height of the screen if that can be."""
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
        """Puts the cursor on a row, if it is there."""
        if name in self._keys:
            self._on, self._moved = name, True
            self._follow()

    # what is seen

    def chosen(self) -> str:
        return self._sorted[self.cursor][1] if 0 <= self.cursor < len(self._sorted) else ""

    def count(self) -> int:
        return len(self._sorted)

    def head(self, width: int) -> Pieces:
        return [Piece(f"{fitted(each.title, size, right=each.right)} ", "title") for each, size in self._fit(width)]

    def line(self, number: int, width: int) -> Pieces:
        row, now = self._rows.get(self._sorted[number][1]), self._clock()
        found: Pieces = []
        if row is None:
            return found  # gone this moment; the list is told in the next
        for each, size in self._fit(width):
            if each.draw is not None:
                found += [*each.draw(row, size), Piece(" ")]
            else:
                found.append(Piece(f"{fitted(each.cell(row, now), size, right=each.right)} ", each.style(row)))
        return found

    def _fit(self, width: int) -> list[tuple[PanelColumn[R], int]]:
        if self._layout[0] != width:
            self._layout = (width, layout(self._columns, width))
        return self._layout[1]
