"""Text on the screen: pieces with a style, whose content can only be printed, cut to the room that they have."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from phalanx.cli.listing.harmless import harmless

# The terminal's own sixteen colours and its own background: they can be read on dark and on light.
STYLES = {
    "": Style(),
    "good": Style(color="green"),
    "bad": Style(color="red"),
    "warn": Style(color="yellow"),
    "mark": Style(color="cyan"),
    "muted": Style(dim=True),
    "title": Style(bold=True),
    "cursor": Style(reverse=True),
}
STATE_STYLES = {
    "Running": "good",
    "Starting": "mark",
    "Pending": "warn",
    "Partial": "bad",
    "Evicting": "bad",
    "Failed": "bad",
    "Gated": "muted",
    "Completing": "muted",
    "Completed": "muted",
    "OtherScheduler": "muted",
}


class Piece(NamedTuple):
    """`style` is a word of STYLES. `text` is of the API or ours: it is made harmless where it is drawn."""

    text: str
    style: str = ""


Pieces = list[Piece]


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """Harmless, and exactly so many cells of the terminal wide."""
    text = harmless(text)
    missing = width - cell_len(text)
    if missing < 0:
        return set_cell_size(text, width - 1) + "…" if width > 0 else ""
    return " " * missing + text if right else text + " " * missing


def strip(pieces: Iterable[Piece], width: int, *, cursor: bool = False) -> Strip:
    """One line of the screen; that of the cursor is turned round, in addition to its own styles."""
    segments, left = [], width
    for piece in pieces:
        text = harmless(piece.text)
        size = cell_len(text)
        if size > left:
            text, size = fitted(text, left), left
        style = STYLES[piece.style]
        segments.append(Segment(text, style + STYLES["cursor"] if cursor else style))
        left -= size
        if left <= 0:
            break
    if left > 0:
        segments.append(Segment(" " * left, STYLES["cursor"] if cursor else STYLES[""]))
    return Strip(segments, width)


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """Lines of at most so many cells, all but the first two deeper than `indent`."""
    text = harmless(text)
    # Who writes with wide characters gets shorter lines, and none that is cut.
    width = max(10, width if cell_len(text) == len(text) else width // 2)
    first, rest = " " * indent, " " * (indent + 2)
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest) or [""]
