"""What all panels are: lines only those that are seen are made, and only those that changed drawn again."""

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
    """Lines by number, beginning at `top`, below a head that stays. The cursor is on one of them, or there is none
    (`with_cursor`), and the keys that would move it scroll."""

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
        """The cursor is elsewhere, or another line is under it."""

    class Opened(Message):
        """Enter was pressed on `row`."""

        def __init__(self, view: LineView, row: str) -> None:
            super().__init__()
            self.view, self.row = view, row

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.top = 0
        self.cursor = 0
        self._drawn: dict[int, tuple[Pieces, bool]] = {}

    # what a panel is made of

    def count(self) -> int:
        """How many lines there are."""
        raise NotImplementedError

    def line(self, number: int, width: int) -> Pieces:
        raise NotImplementedError

    def head(self, width: int) -> Pieces | None:
        """What stays above the lines."""
        return None

    def chosen(self) -> str:
        """The row under the cursor, "" for none."""
        return ""

    # drawing

    @property
    def room(self) -> int:
        """How many lines are seen at once."""
        return max(0, self.size.height - (1 if self.head(self.size.width) is not None else 0))

    def render_line(self, y: int) -> Strip:
        pieces, cursor = self._drawn[y] = self._made(y)
        return strip(pieces, self.size.width, cursor=cursor)

    def draw_changes(self) -> int:
        """Draws those lines again that are not as they stand on the screen; how many."""
        width, changed = self.size.width, 0
        for y in range(self.size.height):
            if self._drawn.get(y) != self._made(y):
                self.refresh(Region(0, y, width, 1))
                changed += 1
        return changed

    def _made(self, y: int) -> tuple[Pieces, bool]:
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

    #: Whether the cursor takes the whole line.
    whole_line = True

    # moving

    def go(self, number: int) -> None:
        """Puts the cursor there, or as near as there are lines, and scrolls as little as that takes."""
        last = self.count() - 1
        self.cursor = max(0, min(number, last))
        room = max(1, self.room)
        self.top = max(min(self.top, self.cursor), self.cursor - room + 1)
        self.settle()

    def scroll_lines(self, top: int) -> None:
        self.top = top
        self.settle()

    def settle(self) -> None:
        """After any change of lines or size: no emptiness below the last line."""
        self.top = max(0, min(self.top, self.count() - self.room))
        self.draw_changes()
        self.post_message(self.Moved())

    def on_resize(self, event: Resize) -> None:
        self._drawn.clear()
        self.resized()
        self.relocate()
        self.refresh()

    def resized(self) -> None:
        """For panels whose lines depend on the width."""

    def relocate(self) -> None:
        """After a change of the lines: the cursor goes where its row is now."""
        if self.with_cursor:
            self.go(self.cursor)
        else:
            self.settle()

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
