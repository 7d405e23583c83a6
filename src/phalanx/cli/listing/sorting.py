"""The order of a list: by a column or by a field."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from phalanx.cli.listing.table import Column
from phalanx.model.text.jsonpath import compile_path

E = TypeVar("E")


def sorted_entries(
    entries: Sequence[E], sort_by: str, columns: Sequence[Column[E]], document: Callable[[E], Any]
) -> list[E]:
    """By the title of a column, in any case and without its brackets, or by a JSONPath; those without a value come
    last. Raises click.UsageError."""
    if not sort_by:
        return list(entries)
    reverse, word = sort_by.startswith("-"), sort_by.removeprefix("-")
    for column in columns:
        title = column.title.lower()
        if word.lower() in (title, title.partition("(")[0]):
            now, order = time.time(), column.order
            keyed = [(order(each) if order is not None else column.text(each, now), each) for each in entries]
            break
    else:
        if word[:1] not in (".", "{", "$", "["):
            known = ", ".join(dict.fromkeys(column.title for column in columns))
            raise click.UsageError(f"--sort-by {word!r}: write one of {known}, or a JSONPath such as .name")
        try:
            path = compile_path(word)
        except ValueError as error:
            raise click.UsageError(f"--sort-by: {error}") from error
        keyed = [(next(iter(path.find(document(each))), None), each) for each in entries]
    there = [(_comparable(key), each) for key, each in keyed if key not in (None, "")]
    there.sort(key=lambda pair: pair[0], reverse=reverse)
    return [each for _, each in there] + [each for key, each in keyed if key in (None, "")]


def _comparable(value: Any) -> tuple[Any, ...]:
    """Numbers before text; text with the numbers in it as numbers, so that node-2 comes before node-10."""
    if isinstance(value, (int, float)):
        return (0, float(value))
    pieces = re.split(r"([0-9]+)", str(value))
    return (
        1,
        [(0, int(each[:18]), each) if each.isdecimal() and each.isascii() else (1, 0, each) for each in pieces],
    )
