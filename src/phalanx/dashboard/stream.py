"""Server-sent events for one browser tab: changes of the tables that the tab shows.

A tab sends the version of each table that it has (`?tables=gangs:17,summary:3&epoch=…`), from its list or its last
event. The server queues nothing: a slow client receives fewer and larger deltas, computed when the connection is
writable. Clients with equal versions and equal rights receive the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from aiohttp import web

from phalanx.dashboard.access import ViewerAccessError
from phalanx.dashboard.renderings import event_bytes
from phalanx.dashboard.scope import Scope
from phalanx.dashboard.watch import ClusterWatch

if TYPE_CHECKING:
    from phalanx.dashboard.api import Api

_COMMENT_PERIOD = 15.0
# Seconds between two reviews of the viewer's rights.
_RIGHTS_PERIOD = 10.0


class Stream:
    def __init__(self, watch: ClusterWatch, api: Api, request: web.Request) -> None:
        self._watch, self._api, self._request = watch, api, request
        self._versions = _read_versions(request.query.get("tables", ""), watch)
        if request.query.get("epoch", "") != watch.tables.epoch:
            self._versions = dict.fromkeys(self._versions, -1)

    async def run(self) -> web.StreamResponse:
        """Write events until the tab disconnects or the viewer loses a right."""
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
        )
        news = self._watch.news.subscribe()
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
                    if now is None or now.audience != scope.audience:
                        # The tab shows data that the viewer no longer has the right to see: it must reload.
                        await response.write(event_bytes("denied" if now is None else "reset", b"{}", ""))
                        break
                if news.is_set():
                    news.clear()
                    if events := self._news(scope):
                        await response.write(events)
                        wrote = time.monotonic()
                elif time.monotonic() - wrote >= _COMMENT_PERIOD:
                    await response.write(b": still here\n\n")
                    wrote = time.monotonic()
        except (ConnectionError, OSError):
            pass
        finally:
            self._watch.news.unsubscribe(news)
        return response

    async def _scope_or_none(self) -> Scope | None:
        try:
            return await self._api.scope_again(self._request)
        except ViewerAccessError as error:
            if error.status == 503:
                raise ConnectionError from error
            return None

    def _news(self, scope: Scope) -> bytes:
        """Return all new events of the tables that the tab shows."""
        events = []
        for name, since in self._versions.items():
            self._versions[name], event = self._api.renderings.delta(scope, name, since)
            events.append(event)
        return b"".join(events)


def _read_versions(text: str, watch: ClusterWatch) -> dict[str, int]:
    """Return the version of each table that the tab has, from the request's query. Raises ViewerAccessError."""
    versions: dict[str, int] = {}
    for part in text.split(",")[:20]:
        name, _, version = part.partition(":")
        if name not in watch.tables or not (version.isascii() and version.isdecimal() and len(version) < 16):
            raise ViewerAccessError(400, "write ?tables=TABLE:VERSION,…&epoch=EPOCH")
        versions[name] = int(version)
    return versions
