"""Tables of rows that change: who has seen a version is told only what has changed since."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator

import msgspec

from phalanx.dashboard.rows.entries import ROWS

# Removals that are remembered; who has seen less starts over.
_MOST_GONE = 20_000


class _Row(msgspec.Struct, gc=False):
    encoded: bytes
    scope: str
    version: int


class Delta(msgspec.Struct):
    """`put` holds rows as JSON, `gone` ids."""

    version: int
    put: list[bytes]
    gone: list[str]

    def __bool__(self) -> bool:
        return bool(self.put or self.gone)


class RowTable:
    """Rows by id, each with a `scope` that says who may see it: a namespace, a queue, "" for what is nobody's.

    Rows are encoded once, whoever looks. They are kept in the order of their last changes, so what has changed
    since a version is found without a look at the rest.
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
        """Puts all of these, and drops all others."""
        found = set()
        for row, content, scope in rows:
            self.put(row, content, scope)
            found.add(row)
        for row in [known for known in self._rows if known not in found]:
            self.drop(row)

    def ids(self) -> Iterator[str]:
        return iter(self._rows)

    def scopes(self) -> set[str]:
        return {row.scope for row in self._rows.values()}

    def get(self, row: str) -> bytes | None:
        known = self._rows.get(row)
        return known.encoded if known is not None else None

    def all(self, sees: Callable[[str], bool]) -> list[bytes]:
        """JSON of the rows whose scopes somebody sees."""
        return [row.encoded for row in self._rows.values() if sees(row.scope)]

    def since(self, version: int, sees: Callable[[str], bool]) -> Delta | None:
        """None where too much was forgotten since."""
        if version < self._forgotten or version > self.version:
            return None
        found = Delta(self.version, [], [])
        for row in reversed(self._rows.values()):
            if row.version <= version:
                break
            if sees(row.scope):
                found.put.append(row.encoded)
        for name, (when, scope) in reversed(self._gone.items()):
            if when <= version:
                break
            if sees(scope):
                found.gone.append(name)
        return found


class Tables:
    """All tables of the page. `epoch` tells the versions of this process from those of another."""

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
