"""Versioned tables of rows, with deltas since a version."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator

import msgspec

from phalanx.dashboard.rows.entries import ROWS

# Number of remembered removals. A client with an older version must reload the table.
_MOST_GONE = 20_000


class _Row(msgspec.Struct, gc=False):
    encoded: bytes
    scope: str
    version: int


class Delta(msgspec.Struct):
    """Changes of a table since a version: `put` contains rows as JSON, `gone` ids of removed rows."""

    version: int
    put: list[bytes]
    gone: list[str]

    def __bool__(self) -> bool:
        return bool(self.put or self.gone)


class RowTable:
    """Rows of one table by id. The `scope` of a row decides who can see it: a namespace, a queue, or "" for none.

    Rows are encoded once for all viewers. They are ordered by their last change, so a delta needs no scan of
    unchanged rows.
    """

    def __init__(self, name: str, tick: Callable[[], int]) -> None:
        self.name = name
        self.version = 0
        self._tick = tick
        self._rows: dict[str, _Row] = {}
        self._gone: dict[str, tuple[int, str]] = {}
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, row: str) -> bool:
        return row in self._rows

    def put(self, row: str, content: msgspec.Struct, scope: str = "") -> None:
        encoded, known = msgspec.json.encode(content), self._rows.get(row)
        if known is not None and known.encoded == encoded and known.scope == scope:
            return
        self._rows.pop(row, None)
        self._gone.pop(row, None)
        self.version = self._tick()
        self._rows[row] = _Row(encoded, scope, self.version)

    def drop(self, row: str) -> None:
        known = self._rows.pop(row, None)
        if known is None:
            return
        self.version = self._tick()
        self._gone[row] = (self.version, known.scope)
        if len(self._gone) > _MOST_GONE:
            oldest = next(iter(self._gone))
            self._forgotten = self._gone.pop(oldest)[0]

    def replace(self, rows: Iterable[tuple[str, msgspec.Struct, str]]) -> None:
        """Put all `rows` into the table and drop all other rows."""
        ids = set()
        for row, content, scope in rows:
            self.put(row, content, scope)
            ids.add(row)
        for row in [known for known in self._rows if known not in ids]:
            self.drop(row)

    def ids(self) -> Iterator[str]:
        return iter(self._rows)

    def scopes(self) -> set[str]:
        return {row.scope for row in self._rows.values()}

    def get(self, row: str) -> bytes | None:
        known = self._rows.get(row)
        return known.encoded if known is not None else None

    def all(self, sees: Callable[[str], bool]) -> list[bytes]:
        """Return the JSON of the table's rows whose scope `sees` accepts."""
        return [row.encoded for row in self._rows.values() if sees(row.scope)]

    def since(self, version: int, sees: Callable[[str], bool]) -> Delta | None:
        """Return the table's changes since `version`; None if older removals are forgotten."""
        if version < self._forgotten or version > self.version:
            return None
        delta = Delta(self.version, [], [])
        for row in reversed(self._rows.values()):
            if row.version <= version:
                break
            if sees(row.scope):
                delta.put.append(row.encoded)
        for name, (when, scope) in reversed(self._gone.items()):
            if when <= version:
                break
            if sees(scope):
                delta.gone.append(name)
        return delta


class Tables:
    """All tables of the page. `epoch` distinguishes the versions of this process from those of an earlier one."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(6)
        self._version = 0
        self._tables = {name: RowTable(name, self._tick) for name in ROWS}

    def __getitem__(self, name: str) -> RowTable:
        return self._tables[name]

    def __contains__(self, name: str) -> bool:
        return name in self._tables

    @property
    def version(self) -> int:
        return self._version

    def _tick(self) -> int:
        self._version += 1
        return self._version
