"""Base of all panels: only visible lines are built, and only changed lines are drawn."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from phalanx.cli.top.pieces import Piece, Pieces, strip


class LineView(Widget, can_focus=True):
    """Panel of numbered lines, shown from line `top` on, below a fixed header line.

    A panel has a cursor on one line, or (without `with_cursor`) the cursor keys scroll.
    """

    DEFAULT_CSS = "LineView { width: 1fr; height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("ctrl+f,pagedown,space", "page(1)", show=False),
        Binding("ctrl+b,pageup", "page(-1)", show=False),
        Binding("g,home", "first", show=False),
        Binding("G,shift+g,end", "last", show=False),
        Binding("enter", "open", show=False),
    ]
    with_cursor = True

    class Moved(Message):
        """Event: the cursor of a panel moved, or the line under it changed."""

    class Opened(Message):
        """Event: the user pressed Enter on the row `row`."""

        def __init__(self, view: LineView, row: str) -> None:
            super().__init__()
            self.view, self.row = view, row

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.top = 0
        self.cursor = 0
        self._drawn: dict[int, tuple[Pieces, bool]] = {}

    # content of a panel

    def count(self) -> int:
        """Return the number of lines of the panel."""
        raise NotImplementedError

    def line(self, number: int, width: int) -> Pieces:
        raise NotImplementedError

    def head(self, width: int) -> Pieces | None:
        """Return the fixed header line above the panel's other lines; None for none."""
        return None

    def chosen(self) -> str:
        """Return the row id under the cursor; "" for none."""
        return ""

    # drawing

    @property
    def room(self) -> int:
        """Number of lines that fit on the screen."""
        return max(0, self.size.height - (1 if self.head(self.size.width) is not None else 0))

    def render_line(self, y: int) -> Strip:
        pieces, cursor = self._drawn[y] = self._content(y)
        return strip(pieces, self.size.width, cursor=cursor)

    def draw_changes(self) -> int:
        """Redraw the panel's lines that differ from the screen, and return their number."""
        width, changed = self.size.width, 0
        for y in range(self.size.height):
            if self._drawn.get(y) != self._content(y):
                self.refresh(Region(0, y, width, 1))
                changed += 1
        return changed

    def _content(self, y: int) -> tuple[Pieces, bool]:
        width = self.size.width
        head = self.head(width)
        if head is not None:
            if y == 0:
                return head, False
            y -= 1
        number = self.top + y
        if not 0 <= number < self.count():
            return [Piece("")], False
        return self.line(number, width), self.with_cursor and number == self.cursor and self.whole_line

    #: Whether the cursor covers the whole line.
    whole_line = True

    # moving

    def go(self, number: int) -> None:
        """Move the cursor to a line (or the nearest existing one), with minimal scrolling."""
        last = self.count() - 1
        self.cursor = max(0, min(number, last))
        room = max(1, self.room)
        self.top = max(min(self.top, self.cursor), self.cursor - room + 1)
        self.fit_to_lines()

    def scroll_lines(self, top: int) -> None:
        self.top = top
        self.fit_to_lines()

    def fit_to_lines(self) -> None:
        """Scroll so that no space below the panel's last line is empty, then redraw; called after changes of lines
        or size."""
        self.top = max(0, min(self.top, self.count() - self.room))
        self.draw_changes()
        self.post_message(self.Moved())

    def on_resize(self, event: Resize) -> None:
        self._drawn.clear()
        self.resized()
        self.relocate()
        self.refresh()

    def resized(self) -> None:
        """Rebuild the panel's lines that depend on its width."""

    def relocate(self) -> None:
        """Move the cursor to its row after the panel's lines have changed."""
        if self.with_cursor:
            self.go(self.cursor)
        else:
            self.fit_to_lines()

    def action_move(self, by: int) -> None:
        if self.with_cursor:
            self.go(self.cursor + by)
        else:
            self.scroll_lines(self.top + by)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.room - 1))

    def action_first(self) -> None:
        self.action_move(-self.count())

    def action_last(self) -> None:
        self.action_move(self.count())

    def action_open(self) -> None:
        row = self.chosen()
        if row:
            self.post_message(self.Opened(self, row))
