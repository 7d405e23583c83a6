"""One stream of server-sent events per tab: what has changed in the tables that it shows.

A tab says which version of each table it has (`?tables=gangs:17,summary:3&epoch=…`), from its list or from the last
event that it saw. Nothing is queued for anybody: whoever is slow gets fewer and larger deltas, because each is
computed from the tables when there is room to write.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from phalanx.dashboard.access import AccessError
from phalanx.dashboard.scope import Scope
from phalanx.dashboard.watch import ClusterWatch

if TYPE_CHECKING:
    from phalanx.dashboard.api import Api

# Between two deltas: calm for the eye, and cheap.
_LEAST_PAUSE = 0.5
_COMMENT_PERIOD = 15.0
# So often rights are asked for again.
_RIGHTS_PERIOD = 10.0


class Stream:
    def __init__(self, watch: ClusterWatch, api: Api, request: web.Request) -> None:
        self._watch, self._api, self._request = watch, api, request
        self._versions = _read_versions(request.query.get("tables", ""), watch)
        if request.query.get("epoch", "") != watch.tables.epoch:
            self._versions = dict.fromkeys(self._versions, -1)

    async def run(self) -> web.StreamResponse:
        """Until the tab goes, or may not see any more what it asks for."""
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
        )
        news = self._watch.subscribe()
        try:
            scope = await self._api.scope_again(self._request)
            await response.prepare(self._request)
            await response.write(b": hello\n\n")
            asked, wrote = time.monotonic(), time.monotonic()
            news.set()
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(_COMMENT_PERIOD, _RIGHTS_PERIOD)):
                        await news.wait()
                if time.monotonic() - asked >= _RIGHTS_PERIOD:
                    asked = time.monotonic()
                    now = await self._scope_or_none()
                    if now is None or now != scope:
                        # What it has seen may be more than it may see: it starts over.
                        await response.write(_event("denied" if now is None else "reset", b"{}", ""))
                        break
                if news.is_set():
                    news.clear()
                    for name in self._versions:
                        for event in self._news_of(name, scope):
                            await response.write(event)
                            wrote = time.monotonic()
                    await asyncio.sleep(_LEAST_PAUSE)
                elif time.monotonic() - wrote >= _COMMENT_PERIOD:
                    await response.write(b": still here\n\n")
                    wrote = time.monotonic()
        except (ConnectionError, OSError):
            pass
        finally:
            self._watch.unsubscribe(news)
        return response

    async def _scope_or_none(self) -> Scope | None:
        try:
            return await self._api.scope_again(self._request)
        except AccessError as error:
            if error.status == 503:
                raise ConnectionError from error
            return None

    def _news_of(self, name: str, scope: Scope) -> Iterator[bytes]:
        table, epoch = self._watch.tables[name], self._watch.tables.epoch
        delta = table.since(self._versions[name], scope.sees(name))
        if delta is None:
            self._versions[name] = table.version
            yield _event("stale", msgspec.json.encode({"table": name}), "")
            return
        self._versions[name] = delta.version
        if not delta:
            return
        head = msgspec.json.encode({"table": name, "epoch": epoch, "version": delta.version, "gone": delta.gone})
        rows = self._api.encoded(scope, delta.put)
        yield _event("delta", head[:-1] + b',"put":[' + b",".join(rows) + b"]}", f"{epoch}-{delta.version}")


def _event(kind: str, data: bytes, number: str) -> bytes:
    """(JSON has no line breaks in it.)"""
    head = f"event: {kind}\n" + (f"id: {number}\n" if number else "")
    return head.encode() + b"data: " + data + b"\n\n"


def _read_versions(text: str, watch: ClusterWatch) -> dict[str, int]:
    """Raises AccessError."""
    found: dict[str, int] = {}
    for part in text.split(",")[:20]:
        name, _, version = part.partition(":")
        if name not in watch.tables or not (version.isascii() and version.isdecimal() and len(version) < 16):
            raise AccessError(400, "write ?tables=TABLE:VERSION,…&epoch=EPOCH")
        found[name] = int(version)
    return found
