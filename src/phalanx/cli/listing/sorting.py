"""Sort order of a list on the command line: by a column or a field."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from phalanx.cli.listing.table import Column
from phalanx.model.text.decoding import quoted
from phalanx.model.text.jsonpath import compile_path

E = TypeVar("E")


def sorted_entries(
    entries: Sequence[E], sort_by: str, columns: Sequence[Column[E]], document: Callable[[E], Any]
) -> list[E]:
    """Return the list entries sorted by a column title (any case, without brackets) or a JSONPath; empty values
    last.

    Raises click.UsageError.
    """
    if not sort_by:
        return list(entries)
    reverse, word = sort_by.startswith("-"), sort_by.removeprefix("-")
    for column in columns:
        title = column.title.lower()
        if word.lower() in (title, title.partition("(")[0]):
            now, order = time.time(), column.order
            keyed = [(order(entry) if order is not None else column.text(entry, now), entry) for entry in entries]
            break
    else:
        if word[:1] not in (".", "{", "$", "["):
            known = ", ".join(dict.fromkeys(column.title for column in columns))
            raise click.UsageError(
                f"unknown --sort-by {quoted(word)}; expected one of {known}, or a JSONPath such as .name"
            )
        try:
            path = compile_path(word)
        except ValueError as error:
            raise click.UsageError(f"--sort-by: {error}") from error
        keyed = [(next(iter(path.find(document(entry))), None), entry) for entry in entries]
    with_value = [(_comparable(key), entry) for key, entry in keyed if key not in (None, "")]
    with_value.sort(key=lambda pair: pair[0], reverse=reverse)
    return [entry for _, entry in with_value] + [entry for key, entry in keyed if key in (None, "")]


def _comparable(value: Any) -> tuple[Any, ...]:
    """Return a sort key: numbers before text; numbers within text by value, so that node-2 sorts before node-10."""
    if isinstance(value, (int, float)):
        return (0, float(value))
    pieces = re.split(r"([0-9]+)", str(value))
    return (
        1,
        [
            (0, int(piece[:18]), piece) if piece.isdecimal() and piece.isascii() else (1, 0, piece)
            for piece in pieces
        ],
    )
