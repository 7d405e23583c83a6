"""Export of usage tables as CSV and Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

#: First characters of a formula in spreadsheets; tenants choose the names in these cells.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
# More digits than any sum has, such as PiB of bytes over centuries.
_DIGITS = 38

#: None is an empty cell.
Cell = str | int | float | None
Rows = Sequence[Sequence[Cell]]


def as_csv(header: Sequence[str], rows: Rows) -> str:
    """Format table rows as CSV (RFC 4180). A text that looks like a formula gets a leading apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(header)
    writer.writerows([[_harmless(cell) for cell in row] for row in rows])
    return out.getvalue()


def write_parquet(file: Path, header: Sequence[str], rows: Rows, sums: Sequence[str]) -> None:
    """Write table rows as Parquet. Columns in `sums` are exact integers beyond 64 bits, written as decimals.

    Raises ImportError without pyarrow, and OSError.
    """
    import pyarrow
    import pyarrow.parquet

    columns: dict[str, Any] = {}
    for index, name in enumerate(header):
        cells = [row[index] for row in rows]
        if name in sums:
            exact = [Decimal(cell) if cell is not None else None for cell in cells]
            columns[name] = pyarrow.array(exact, pyarrow.decimal128(_DIGITS, 0))
        else:
            columns[name] = pyarrow.array(cells, _type_of(pyarrow, cells))
    pyarrow.parquet.write_table(pyarrow.table(columns), file)


def _type_of(pyarrow: Any, cells: Sequence[Cell]) -> Any:
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {str}:
        return pyarrow.string()
    return pyarrow.float64() if float in kinds else pyarrow.bool_() if kinds == {bool} else pyarrow.int64()


def _harmless(cell: Cell) -> Cell:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULAS) else cell
