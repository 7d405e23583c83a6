"""Lists of entries that turn into data frames, and into tables in notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from phalanx.sdk.errors import PhalanxError

T = TypeVar("T")
_ROWS_SHOWN = 50


class EntryList(list[T]):
    """List of entries (structs) of one kind. `columns` names the fields that notebooks show."""

    def __init__(self, entries: Iterable[T], columns: tuple[str, ...] = ()) -> None:
        super().__init__(entries)
        self.columns = columns

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the entries as plain dictionaries."""
        import msgspec

        return [msgspec.to_builtins(_plain(entry)) for entry in self]

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame, one row per entry. Raises PhalanxError without pandas."""
        try:
            import pandas
        except ImportError as error:
            raise PhalanxError("to_pandas needs pandas: pip install pandas") from error
        return pandas.DataFrame(self.to_dicts())

    def to_polars(self) -> Any:
        """Return a polars.DataFrame, one row per entry. Raises PhalanxError without polars."""
        try:
            import polars
        except ImportError as error:
            raise PhalanxError("to_polars needs polars: pip install polars") from error
        return polars.DataFrame(self.to_dicts(), infer_schema_length=None)

    def __repr__(self) -> str:
        from phalanx.sdk.html import as_text

        rows = self.to_dicts()
        if not rows:
            return "[]"
        columns = self.columns or tuple(rows[0])
        cells = [[column.upper() for column in columns]]
        cells += [[as_text(row.get(column)) for column in columns] for row in rows[:_ROWS_SHOWN]]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) for line in cells]
        lines += [f"and {len(rows) - _ROWS_SHOWN} more"] if len(rows) > _ROWS_SHOWN else []
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        from phalanx.sdk.html import table

        rows = self.to_dicts()
        columns = self.columns or tuple(rows[0] if rows else ())
        return table(columns, rows[:_ROWS_SHOWN], hidden=max(0, len(rows) - _ROWS_SHOWN))


def _plain(entry: Any) -> Any:
    """Return an entry with all its fields, so that every row of a frame has the same columns."""
    import msgspec

    return msgspec.structs.asdict(entry) if isinstance(entry, msgspec.Struct) else entry
