"""Panel of text lines: gang details, a document, or the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.cli.top.line_view import LineView
from phalanx.cli.top.pieces import Piece, Pieces, wrapped


@dataclass(frozen=True)
class Line:
    """Text line of the pager before wrapping; `pieces`, if any, are drawn unwrapped instead of the text."""

    text: str = ""
    style: str = ""
    indent: int = 0
    pieces: tuple[Piece, ...] = ()


class Pager(LineView):
    with_cursor = False

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.lines: Sequence[Line] = ()
        self._wrapped: list[Pieces] = []

    def show(self, lines: Sequence[Line], *, from_top: bool = True) -> None:
        self.lines = lines
        if from_top:
            self.top = 0
        self.resized()
        self.fit_to_lines()

    def resized(self) -> None:
        width = max(1, self.size.width)
        self._wrapped = [
            pieces
            for line in self.lines
            for pieces in (
                [list(line.pieces)]
                if line.pieces
                else [[Piece(part, line.style)] for part in wrapped(line.text, width, line.indent)]
            )
        ]

    def count(self) -> int:
        return len(self._wrapped)

    def line(self, number: int, width: int) -> Pieces:
        return self._wrapped[number]
