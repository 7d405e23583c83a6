"""Encoded tables and deltas, shared between viewers with equal rights."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from phalanx.dashboard.news import News
from phalanx.dashboard.redaction import Redaction
from phalanx.dashboard.scope import Audience, Scope
from phalanx.dashboard.tables import Tables

_MOST_DELTAS = 512
# A list is cached for a multiple of its encoding time, up to a number of seconds: encoding of large lists then uses
# at most a fixed part of a core. The stream delivers later changes.
_LIST_FACTOR, _MOST_LIST_SECONDS = 20.0, 2.0
_MOST_LISTS = 64
# Bodies below this size in bytes are not compressed.
_COMPRESSED_FROM = 4096
_LEVEL = 4


class ListBody(NamedTuple):
    """Encoded table for one response. `packed` is the gzip form, empty if compression does not pay."""

    plain: bytes
    packed: bytes


class _List(msgspec.Struct):
    until: float
    body: ListBody


class Renderings:
    """Cache of encoded tables and deltas.

    `deltas` counts encoded deltas, `shared` counts deltas that a further viewer reused.
    """

    def __init__(self, tables: Tables, news: News) -> None:
        self._tables, self._news = tables, news
        self._lists: OrderedDict[tuple[Audience, str], _List] = OrderedDict()
        self._turns: dict[tuple[Audience, str], asyncio.Lock] = {}
        # Deltas since the last notification: all streams that wake for one notification need the same delta.
        self._deltas: dict[tuple[Audience, str, int], tuple[int, bytes]] = {}
        self._telling = -1
        self.deltas = self.shared = 0

    async def table(self, scope: Scope, name: str) -> ListBody:
        """Return the encoded table with all rows that viewers of the scope can see."""
        key = (scope.audience, name)
        if (known := self._current(key)) is not None:
            return known
        turn = self._turns.setdefault(key, asyncio.Lock())
        try:
            async with turn:
                return self._current(key) or await self._list(key, scope, name)
        finally:
            if not turn.locked():
                self._turns.pop(key, None)

    def delta(self, scope: Scope, name: str, since: int) -> tuple[int, bytes]:
        """Return (new version, server-sent event with the changes from `since` to it); the event is b"" without
        changes."""
        if self._telling != self._news.number or len(self._deltas) > _MOST_DELTAS:
            self._deltas.clear()
            self._telling = self._news.number
        key = (scope.audience, name, since)
        known = self._deltas.get(key)
        if known is not None:
            self.shared += 1
            return known
        self.deltas += 1
        self._deltas[key] = made = self._delta(scope, name, since)
        return made

    def _current(self, key: tuple[Audience, str]) -> ListBody | None:
        known = self._lists.get(key)
        return known.body if known is not None and time.monotonic() < known.until else None

    async def _list(self, key: tuple[Audience, str], scope: Scope, name: str) -> ListBody:
        begun, table = time.monotonic(), self._tables[name]
        rows = _encoded(scope, name, table.all(scope.sees(name)))
        head = msgspec.json.encode(
            {
                "table": name,
                "epoch": self._tables.epoch,
                "version": table.version,
                "omitted": scope.omitted(name),
            }
        )
        plain = head[:-1] + b',"rows":[' + b",".join(rows) + b"]}"
        packed = b""
        if len(plain) >= _COMPRESSED_FROM:
            packed = await asyncio.to_thread(gzip.compress, plain, _LEVEL, mtime=0)
        body, now = ListBody(plain, packed), time.monotonic()
        seconds = min(_MOST_LIST_SECONDS, _LIST_FACTOR * (now - begun))
        self._lists[key] = _List(now + seconds, body)
        self._lists.move_to_end(key)
        while len(self._lists) > _MOST_LISTS:
            self._lists.popitem(last=False)
        return body

    def _delta(self, scope: Scope, name: str, since: int) -> tuple[int, bytes]:
        table, epoch = self._tables[name], self._tables.epoch
        delta = table.since(since, scope.sees(name))
        if delta is None:
            return table.version, event_bytes("stale", msgspec.json.encode({"table": name}), "")
        if not delta:
            return delta.version, b""
        head = msgspec.json.encode({"table": name, "epoch": epoch, "version": delta.version, "gone": delta.gone})
        body = head[:-1] + b',"put":[' + b",".join(_encoded(scope, name, delta.put)) + b"]}"
        return delta.version, event_bytes("delta", body, f"{epoch}-{delta.version}")


def _encoded(scope: Scope, table: str, rows: list[bytes]) -> list[bytes]:
    """Return the encoded rows of a table, redacted for viewers of the scope."""
    redaction = Redaction(scope)
    return [redaction.row(table, row) for row in rows]


def event_bytes(kind: str, data: bytes, number: str) -> bytes:
    """Return a server-sent event. `data` is JSON, which has no line breaks."""
    head = f"event: {kind}\n" + (f"id: {number}\n" if number else "")
    return head.encode() + b"data: " + data + b"\n\n"
