"""Heat map of the nodes: one block per node, grouped by rack."""

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

# Shades by used part: 0, up to 1/3, up to 2/3, below 1. A cell is two characters wide.
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
    """Return a sort key that compares numbers in names by value: node-9 before node-10."""
    parts = _DIGITS.split(name)
    return [(0, int(part), "") if number % 2 else (1, 0, part) for number, part in enumerate(parts)]


def use(row: NodeRow, resource: str) -> float | None:
    """Return the used part of a node's resource, 0 to 1; None if the node does not offer the resource."""
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
    return next(((text, style) for limit, text, style in _SHADES if used <= limit), _FULL)


def node_summary(row: NodeRow, resource: str) -> str:
    """Return free resources, restrictions and pods of a node in one line."""
    names = [resource, *(name for name in (CPU, MEMORY) if name != resource and name in row.offered)]
    amounts = ((name, row.free.get(name, 0), row.offered.get(name, 0)) for name in names)
    free = ", ".join(
        f"{format_quantity(left, name)} of {format_quantity(offered, name)} {name}"
        for name, left, offered in amounts
    )
    notes = [row.closed, f"taint {row.taint}" if row.taint else "", f"{row.pods} pods"]
    return f"{row.id}: {free} free; {', '.join(note for note in notes if note)}"


class NodeMap(LineView):
    """Heat map of nodes; a rack has one or more lines, the first starts with its name, number of nodes and
    usage."""

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
        # Node names by rack, in order; lines: (rack, whether it is the rack's first line, node names).
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
        """Resources of the nodes, scarcest kind first: devices, CPU, memory."""
        names = {name for row in self._rows.values() for name in row.offered}
        devices = sorted(name for name in names if "/" in name and not name.startswith("hugepages"))
        return [*devices, *(name for name in (CPU, MEMORY) if name in names)] or [CPU]

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
        """Return the rack of the node; None if the node is not shown."""
        row = self._rows.get(name)
        return row.rack if row is not None and self.filter(row) else None

    def _arrange(self) -> None:
        self._places = {name: place for name in self._rows if (place := self._place(name)) is not None}
        racks: dict[str, list[str]] = {}
        for name in sorted(self._places, key=natural):
            racks.setdefault(self._places[name], []).append(name)
        self._racks = dict(sorted(racks.items(), key=lambda item: natural(item[0])))
        self._use.clear()
        self.resized()
        self.relocate()

    def resized(self) -> None:
        per_line = max(1, (self.size.width - _TITLE) // _CELL)
        self._lines = [
            (rack, first == 0, names[first : first + per_line])
            for rack, names in self._racks.items()
            for first in range(0, len(names), per_line)
        ]

    # drawing

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
        pieces = [Piece(self._title(rack) if first else " " * _TITLE)]
        for column, name in enumerate(names):
            row = self._rows.get(name)
            text, style = block(row, self.resource) if row is not None else _WITHOUT
            if number == self.cursor and column == self._column:
                text, style = _CURSOR
            if len(pieces) > 1 and pieces[-1].style == style:
                pieces[-1] = Piece(f"{pieces[-1].text}{text} ", style)
            else:
                # The gap after a block has the block's style, except after the cursor.
                pieces += [Piece(text, style), Piece(" ")] if style == "cursor" else [Piece(f"{text} ", style)]
        return pieces

    def _title(self, rack: str) -> str:
        title = self._use.get(rack)
        if title is None:
            rows = [row for name in self._racks[rack] if (row := self._rows.get(name)) is not None]
            offered = sum(row.offered.get(self.resource, 0) for row in rows)
            free = sum(row.free.get(self.resource, 0) for row in rows)
            share = f"{100 * (1 - free / offered):.0f}%" if offered else "-"
            title = f"{fitted(rack or 'no rack', 12)} {len(self._racks[rack]):>5} {share:>5}  "
            self._use[rack] = title
        return title

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
        """Move the cursor to its node after the heat map's lines have changed."""
        for number, (_, _, names) in enumerate(self._lines):
            if self._on in names:
                self._column = names.index(self._on)
                self.go(number)
                return
        self.go(self.cursor)

    def action_sideways(self, by: int) -> None:
        """Move the cursor to the next or previous node block, across line ends."""
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
        """Show the usage of the next resource in the heat map."""
        names = self.resources
        self.resource = names[(names.index(self.resource) + 1) % len(names)] if self.resource in names else names[0]
        self._use.clear()
        self.draw_changes()
        self.post_message(self.Moved())
