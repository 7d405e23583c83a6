"""The nodes as a heat map: one block each, by rack."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

from textual.binding import Binding, BindingType

from phalanx.cli.top.filters import Filter
from phalanx.cli.top.line_view import LineView
from phalanx.cli.top.pieces import Piece, Pieces, fitted
from phalanx.dashboard.rows.entries import NodeRow
from phalanx.model.resources import CPU, MEMORY
from phalanx.model.text.quantity import format_quantity

# Of which part of it is used: nothing, up to a third, two thirds, all but full, full. A cell is two blocks wide.
_SHADES = ((0.0, "··", "muted"), (1 / 3, "░░", "good"), (2 / 3, "▒▒", "mark"), (0.999, "▓▓", "warn"))
_FULL = ("██", "bad")
_CLOSED, _TAINTED, _WITHOUT, _CURSOR = ("xx", "muted"), ("!!", "muted"), ("  ", "muted"), ("[]", "cursor")
LEGEND = "·· free  ░░ to 1/3 used  ▒▒ to 2/3  ▓▓ more  ██ full  xx closed  !! tainted"
_CELL = 3
_TITLE = 26
_DIGITS = re.compile(r"(\d{1,18})")

FIELDS: dict[str, Callable[[NodeRow], str]] = {
    "name": lambda row: row.id,
    "rack": lambda row: row.rack,
    "zone": lambda row: row.zone,
    "closed": lambda row: row.closed,
    "taint": lambda row: row.taint,
}


def natural(name: str) -> list[tuple[int, int, str]]:
    """Numbers within names by their value: node-9 before node-10."""
    parts = _DIGITS.split(name)
    return [(0, int(each), "") if number % 2 else (1, 0, each) for number, each in enumerate(parts)]


def use(row: NodeRow, resource: str) -> float | None:
    """The part of a resource that is used, 0 to 1; None where the node has none of it."""
    offered = row.offered.get(resource, 0)
    return 1 - row.free.get(resource, 0) / offered if offered > 0 else None


def block(row: NodeRow, resource: str) -> tuple[str, str]:
    used = use(row, resource)
    if row.closed:
        return _CLOSED
    if used is None:
        return _WITHOUT
    if row.taint:
        return _TAINTED
    return next(((text, style) for most, text, style in _SHADES if used <= most), _FULL)


def told(row: NodeRow, resource: str) -> str:
    """A node in one line."""
    names = [resource, *(each for each in (CPU, MEMORY) if each != resource and each in row.offered)]
    amounts = ((each, row.free.get(each, 0), row.offered.get(each, 0)) for each in names)
    free = ", ".join(
        f"{format_quantity(some, key)} of {format_quantity(most, key)} {key}" for key, some, most in amounts
    )
    more = [row.closed, f"taint {row.taint}" if row.taint else "", f"{row.pods} pods"]
    return f"{row.id}: {free} free; {', '.join(each for each in more if each)}"


class NodeMap(LineView):
    """A rack is one line of blocks or several, with its name, the number of its nodes and their use in front."""

    whole_line = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l,right", "sideways(1)", show=False),
        Binding("h,left", "sideways(-1)", show=False),
        Binding("r", "resource", show=False),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._rows: Mapping[str, NodeRow] = {}
        self.resource = CPU
        self._chose_resource = False
        self.filter: Filter[NodeRow] = Filter("", FIELDS)
        # Racks and the nodes of each, in order; lines: (rack, first of its nodes on it, those on it).
        self._racks: dict[str, list[str]] = {}
        self._places: dict[str, str] = {}
        self._lines: list[tuple[str, bool, list[str]]] = []
        self._use: dict[str, str] = {}
        self._column = 0
        self._on = ""

    @property
    def matching(self) -> int:
        return len(self._places)

    @property
    def resources(self) -> list[str]:
        """What nodes offer, the scarcest kind first: devices, CPU, memory."""
        found = {name for row in self._rows.values() for name in row.offered}
        devices = sorted(name for name in found if "/" in name and not name.startswith("hugepages"))
        return [*devices, *(each for each in (CPU, MEMORY) if each in found)] or [CPU]

    def take_in(self, rows: Mapping[str, NodeRow], changed: Collection[str] | None) -> None:
        self._rows = rows
        if not self._chose_resource and rows:
            self.resource, self._chose_resource = self.resources[0], True
        if changed is None or any(self._place(name) != self._places.get(name) for name in changed):
            self._arrange()
        else:
            for rack in {self._places[name] for name in changed if name in self._places}:
                self._use.pop(rack, None)
        self.draw_changes()
        self.post_message(self.Moved())

    def filter_by(self, text: str) -> None:
        self.filter = Filter(text, FIELDS)
        self._arrange()
        self.draw_changes()

    def choose(self, name: str) -> None:
        if name in self._places:
            self._on = name
            self.relocate()

    def _place(self, name: str) -> str | None:
        """In which rack it is shown; None for nowhere."""
        row = self._rows.get(name)
        return row.rack if row is not None and self.filter(row) else None

    def _arrange(self) -> None:
        self._places = {name: place for name in self._rows if (place := self._place(name)) is not None}
        racks: dict[str, list[str]] = {}
        for name in sorted(self._places, key=natural):
            racks.setdefault(self._places[name], []).append(name)
        self._racks = dict(sorted(racks.items(), key=lambda each: natural(each[0])))
        self._use.clear()
        self.resized()
        self.relocate()

    def resized(self) -> None:
        across = max(1, (self.size.width - _TITLE) // _CELL)
        self._lines = [
            (rack, first == 0, names[first : first + across])
            for rack, names in self._racks.items()
            for first in range(0, len(names), across)
        ]

    # what is seen

    def count(self) -> int:
        return len(self._lines)

    def head(self, width: int) -> Pieces:
        return [
            Piece(fitted("RACK         NODES  USED", _TITLE), "title"),
            Piece(f"{self.resource}  ", "title"),
            Piece(LEGEND, "muted"),
        ]

    def line(self, number: int, width: int) -> Pieces:
        rack, first, names = self._lines[number]
        found = [Piece(self._title(rack) if first else " " * _TITLE)]
        for place, name in enumerate(names):
            row = self._rows.get(name)
            text, style = block(row, self.resource) if row is not None else _WITHOUT
            if number == self.cursor and place == self._column:
                text, style = _CURSOR
            if len(found) > 1 and found[-1].style == style:
                found[-1] = Piece(f"{found[-1].text}{text} ", style)
            else:
                # The gap after a block belongs to it, but for the cursor's.
                found += [Piece(text, style), Piece(" ")] if style == "cursor" else [Piece(f"{text} ", style)]
        return found

    def _title(self, rack: str) -> str:
        known = self._use.get(rack)
        if known is None:
            rows = [row for name in self._racks[rack] if (row := self._rows.get(name)) is not None]
            offered = sum(row.offered.get(self.resource, 0) for row in rows)
            free = sum(row.free.get(self.resource, 0) for row in rows)
            share = f"{100 * (1 - free / offered):.0f}%" if offered else "-"
            known = f"{fitted(rack or 'no rack', 12)} {len(self._racks[rack]):>5} {share:>5}  "
            self._use[rack] = known
        return known

    def chosen(self) -> str:
        if not 0 <= self.cursor < len(self._lines):
            return ""
        names = self._lines[self.cursor][2]
        return names[min(self._column, len(names) - 1)]

    # moving

    def go(self, number: int) -> None:
        super().go(number)
        if self._lines:
            self._column = min(self._column, len(self._lines[self.cursor][2]) - 1)
        self._on = self.chosen()
        self.draw_changes()
        self.post_message(self.Moved())

    def relocate(self) -> None:
        """Puts the cursor on the node that it was on, wherever that is now."""
        for number, (_, _, names) in enumerate(self._lines):
            if self._on in names:
                self._column = names.index(self._on)
                self.go(number)
                return
        self.go(self.cursor)

    def action_sideways(self, by: int) -> None:
        """To the next block, also on the next line."""
        if not self._lines:
            return
        column = self._column + by
        if 0 <= column < len(self._lines[self.cursor][2]):
            self._column = column
            self.go(self.cursor)
        elif 0 <= self.cursor + by < len(self._lines):
            self._column = 0 if by > 0 else len(self._lines[self.cursor + by][2]) - 1
            self.go(self.cursor + by)

    def action_resource(self) -> None:
        """The next thing that nodes offer."""
        names = self.resources
        self.resource = names[(names.index(self.resource) + 1) % len(names)] if self.resource in names else names[0]
        self._use.clear()
        self.draw_changes()
        self.post_message(self.Moved())
