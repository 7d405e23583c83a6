"""Tables on the command line whose rows arrive one after the other, in kubectl's layout, with colours on a
terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import click

from phalanx.cli.listing.harmless import cells_of

E = TypeVar("E")
_GAP = "   "


@dataclass(frozen=True)
class Column(Generic[E]):
    """Column of a table.

    `text` returns the cell of an entry at a time (seconds since the epoch); "" prints as `-`. `wide` columns appear
    only with `-o wide`, `narrow` columns only without. `colour` returns a click colour or None. `order` returns the
    value that `--sort-by` compares (default: the text).
    """

    title: str
    text: Callable[[E, float], str]
    wide: bool = False
    narrow: bool = False
    colour: Callable[[E], str | None] | None = None
    order: Callable[[E], object] | None = None


def colours_wanted() -> bool:
    """Return whether stdout is a terminal and colours are not disabled (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Table:
    """Table whose columns keep their width until a later cell needs more."""

    def __init__(self, titles: Sequence[str], *, colours: bool) -> None:
        self._titles = list(titles)
        self._widths = [0] * len(titles)
        self._colours = colours

    def header(self) -> str:
        return self._line(self._titles, [None] * len(self._titles))

    def lines(
        self, rows: Sequence[Sequence[str]], colours: Sequence[Sequence[str | None]], *, header: bool
    ) -> list[str]:
        """Format rows as lines of the table, with the header if `header` is set."""
        cells = [cells_of(row, "-") for row in rows]
        shown = [self._titles, *cells] if header else cells
        for index, column in enumerate(zip(*shown, strict=True)):
            self._widths[index] = max(self._widths[index], max(map(len, column)))
        lines = [self._line(row, paint) for row, paint in zip(cells, colours, strict=True)]
        return [self.header(), *lines] if header else lines

    def _line(self, cells: Sequence[str], paint: Sequence[str | None]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True)]
        padded[-1] = cells[-1]
        if self._colours:
            padded = [
                click.style(text, fg=colour) if colour else text for text, colour in zip(padded, paint, strict=True)
            ]
        return _GAP.join(padded).rstrip()
