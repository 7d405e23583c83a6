"""Styled text on the screen of `phalanx top`, free of control characters and cut to its width."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from phalanx.cli.listing.harmless import harmless

# Only the terminal's sixteen colours and its background: readable on dark and on light.
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
    "Suspended": "muted",
    "Cancelled": "muted",
    "OtherScheduler": "muted",
}


class Piece(NamedTuple):
    """Text with a `style` of STYLES; control characters are escaped when it is drawn."""

    text: str
    style: str = ""


Pieces = list[Piece]


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """Return text without control characters, cut or filled to exactly `width` cells."""
    text = harmless(text)
    padding = width - cell_len(text)
    if padding < 0:
        return set_cell_size(text, width - 1) + "…" if width > 0 else ""
    return " " * padding + text if right else text + " " * padding


def strip(pieces: Iterable[Piece], width: int, *, cursor: bool = False) -> Strip:
    """Return one screen line of styled pieces; the cursor line is also reversed."""
    segments, remaining = [], width
    for piece in pieces:
        text = harmless(piece.text)
        size = cell_len(text)
        if size > remaining:
            text, size = fitted(text, remaining), remaining
        style = STYLES[piece.style]
        segments.append(Segment(text, style + STYLES["cursor"] if cursor else style))
        remaining -= size
        if remaining <= 0:
            break
    if remaining > 0:
        segments.append(Segment(" " * remaining, STYLES["cursor"] if cursor else STYLES[""]))
    return Strip(segments, width)


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """Wrap a text to lines of at most `width` cells; all but the first are indented two more."""
    text = harmless(text)
    # With wide characters wrap at half the width, so that no line is cut.
    width = max(10, width if cell_len(text) == len(text) else width // 2)
    first, following = " " * indent, " " * (indent + 2)
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=following) or [""]
