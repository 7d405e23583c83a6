"""Strict reader of CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from phalanx.model.text.decoding import quoted
from phalanx.simulation.errors import InputError

Row = dict[str, str]


def columns_of(text: str) -> list[str]:
    """Return the column names of the first line."""
    return next(csv.reader(io.StringIO(text)), [])


def table(text: str, name: str, columns: Sequence[str]) -> list[tuple[int, Row]]:
    """Return (line number, row) of a file with at least these columns. Raises InputError."""
    reader = csv.DictReader(io.StringIO(text))
    names = reader.fieldnames or ()
    missing = [column for column in columns if column not in names]
    if missing:
        raise InputError(f"{name}: line 1: no column {missing[0]}; the first line names {', '.join(columns)}")
    rows: list[tuple[int, Row]] = []
    for row in reader:
        if None in row.values() or None in row:
            raise InputError(f"{name}: line {reader.line_num}: write {len(names)} values, one for each column")
        rows.append((reader.line_num, row))
    if not rows:
        raise InputError(f"{name}: no row below the header line")
    return rows


def whole(row: Mapping[str, str], column: str, name: str, line: int, *, default: int | None = None) -> int:
    """Return a whole number >= 0 with any fraction cut off. Raises InputError."""
    text = row[column].strip()
    if not text and default is not None:
        return default
    try:
        number = int(float(text))
    except (ValueError, OverflowError):
        number = -1
    if number < 0:
        raise InputError(f"{name}: line {line}: {column} is {quoted(row[column])}; write a number, at least 0")
    return number
