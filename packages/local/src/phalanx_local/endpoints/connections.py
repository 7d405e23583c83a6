"""Time limits of HTTP connections, so that clients that send nothing do not use up the file descriptors."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

# Limits of kube-apiserver in seconds: headers of the first request, pause between two requests, body.
HEADER_SECONDS: Final = 32.0
IDLE_SECONDS: Final = 90.0
BODY_SECONDS: Final = 60.0
# kube-apiserver limits the bytes of all headers; each group of an impersonated user is a header.
_MOST_HEADERS: Final = 2048


class TimedServer(web.Server):
    """HTTP server that closes a connection if the client sends no complete request line and headers in time.

    The first request has `HEADER_SECONDS`; a later one is limited by the keep-alive timeout of aiohttp.
    """

    def __init__(
        self, handler: Any, *, max_body: int, header_seconds: float = HEADER_SECONDS, **options: Any
    ) -> None:
        super().__init__(
            handler,
            request_factory=self._request,
            keepalive_timeout=IDLE_SECONDS,
            max_headers=_MOST_HEADERS,
            **options,
        )
        self._max_body = max_body
        self._header_seconds = header_seconds
        self._deadlines: dict[RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        loop = asyncio.get_running_loop()
        self._deadlines[handler] = loop.call_later(self._header_seconds, transport.abort)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self._end_deadline(handler)
        super().connection_lost(handler, exc)

    def _end_deadline(self, handler: RequestHandler) -> None:
        deadline = self._deadlines.pop(handler, None)
        if deadline is not None:
            deadline.cancel()

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        self._end_deadline(protocol)
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=self._max_body)
